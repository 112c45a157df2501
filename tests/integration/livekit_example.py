"""A process with livekit-agents in it: the agent of the examples without a room, and a listener who hears its greeting
and interrupts its first answer.

Reads where the LLM and the gateway are in JSON, prints what was heard of the greeting and of each answer.
"""

import asyncio
import base64
import json
import logging
import sys

from livekit import rtc
from livekit.agents.utils import http_context
from livekit.agents.voice.io import AudioOutput, AudioOutputCapabilities

from voicegate.clients.examples.chat import Llm
from voicegate.clients.examples.livekit_agent import begin, new_session

_PATIENCE_S = 60.0
_RATE_HZ = 24_000
_SOME_BYTES = 2 * _RATE_HZ  # a second: some words


class Ear(AudioOutput):
    """A listener who hears at once what comes."""

    def __init__(self) -> None:
        super().__init__(label="ear", capabilities=AudioOutputCapabilities(pause=False), sample_rate=_RATE_HZ)
        self.audio = b""
        self.has_audio = asyncio.Event()
        self.has_ended = asyncio.Event()

    def begin(self) -> None:
        self.audio = b""
        self.has_audio.clear()

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        self.audio += bytes(frame.data)
        if len(self.audio) >= _SOME_BYTES:
            self.has_audio.set()

    def flush(self) -> None:
        super().flush()
        self._end(is_interrupted=False)

    def clear_buffer(self) -> None:
        self._end(is_interrupted=True)

    def _end(self, *, is_interrupted: bool) -> None:
        if self._pending_playback_count:
            seconds = len(self.audio) / 2 / _RATE_HZ
            self.on_playback_finished(playback_position=seconds, interrupted=is_interrupted)
            self.has_ended.set()


async def converse(plan: dict[str, str]) -> list[str]:
    ear, heard = Ear(), []
    session = new_session(Llm(plan["llm"], "stub"), gateway=plan["gateway"])
    session.output.audio = ear
    async with asyncio.timeout(_PATIENCE_S), http_context.open():
        await begin(session, record=False)
        await ear.has_ended.wait()
        heard.append(ear.audio)
        ear.begin()
        story = session.generate_reply(user_input="Tell me a story.")
        await ear.has_audio.wait()
        await session.interrupt()
        await story.wait_for_playout()
        heard.append(ear.audio)
        ear.begin()
        await session.generate_reply(user_input="Stop!").wait_for_playout()
        heard.append(ear.audio)
        await session.aclose()
    return [base64.b64encode(audio).decode() for audio in heard]


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    json.dump(asyncio.run(converse(json.load(sys.stdin))), sys.stdout)
