"""A process with livekit-agents in it: its plugins' TTS objects, each saying what it is told through a gateway.

Reads the gateway's host and port and texts in JSON, prints what was heard of each by each, and when its words began.
"""

import asyncio
import base64
import json
import logging
import sys
from dataclasses import asdict, dataclass
from typing import Any

from livekit import rtc
from livekit.agents import tts
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT
from livekit.agents.utils import http_context
from livekit.plugins import cartesia, deepgram, elevenlabs, openai, voicegate

from tests.integration.configurations import configurations

_PATIENCE_S = 60.0


PLUGINS = {
    "elevenlabs": elevenlabs,
    "cartesia": cartesia,
    "deepgram": deepgram,
    "openai": openai,
    "voicegate": voicegate,
}


def voice_of(configuration: str) -> tts.TTS:
    """As docs/compatibility.md has it."""
    names: dict[str, Any] = {**PLUGINS}
    exec(configuration, names)
    voice: tts.TTS = names["tts"]
    return voice


@dataclass
class Heard:
    audio: str  # base64
    starts_s: list[float]  # of words, where they are told
    text: str  # of these words, put together as LiveKit does


async def said(voice: tts.TTS, text: str) -> Heard:
    """Streamed where it can, word by word."""
    if not voice.capabilities.streaming:
        async with voice.synthesize(text) as stream:
            return heard_of([event.frame async for event in stream])
    async with voice.stream() as stream:
        for word in text.split(" "):
            stream.push_text(f"{word} ")
        stream.end_input()
        return heard_of([event.frame async for event in stream])


def heard_of(frames: list[rtc.AudioFrame]) -> Heard:
    words = [word for frame in frames for word in frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, ())]
    audio = b"".join(bytes(frame.data) for frame in frames)
    return Heard(base64.b64encode(audio).decode(), [word.start_time for word in words], "".join(words))


async def main(gateway: str, texts: list[str]) -> dict[str, list[dict[str, Any]]]:
    heard = {}
    async with asyncio.timeout(_PATIENCE_S), http_context.open():
        for configuration in (*configurations("livekit", gateway), f'tts = voicegate.TTS(url="ws://{gateway}")'):
            voice = voice_of(configuration)
            name = type(voice).__module__.split(".")[-2]
            heard[name] = [asdict(await said(voice, text)) for text in texts]
            await voice.aclose()
    return heard


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    plan = json.load(sys.stdin)
    json.dump(asyncio.run(main(plan["gateway"], plan["texts"])), sys.stdout)
