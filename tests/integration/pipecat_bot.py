"""A process with pipecat in it: bots that say what they are told, each through one of its services.

`python pipecat_bot.py` reads lists of plans, each in one line of JSON. It carries out a list's plans side by side, and
prints a line with what was heard of each.
"""

import asyncio
import base64
import json
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

from loguru import logger
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.cartesia.tts import CartesiaTTSService
from pipecat.services.deepgram.tts import DeepgramTTSService
from pipecat.services.elevenlabs.tts import ElevenLabsTTSService
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.workers.runner import WorkerRunner
from pipecat_voicegate import VoicegateTTSService

_PATIENCE_S = 60.0
_SOME_WORDS = 5  # one would not tell how they are put together


@dataclass
class Turn:
    text: str
    # None: heard to its end. Else it is interrupted at its first audio, while the LLM goes on or after it has ended.
    # Of the last turn also "by the end of the call", or "by an EndFrame", which lets audio be played to its end.
    interrupted: str | None = None
    continued: str = ""  # the LLM writes it `pause_s` after the first audio
    pause_s: float = 0.0


@dataclass
class Heard:
    audio: bytes = b""
    words: list[str] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)  # of these, on a clock of its own
    errors: list[str] = field(default_factory=list)


class Ear(FrameProcessor):
    """The end of the pipeline."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = Heard()
        self.has_audio = asyncio.Event()
        self.has_words = asyncio.Event()
        self.has_stopped = asyncio.Event()
        self.is_interrupted = asyncio.Event()  # nothing of the old turn follows

    def begin(self) -> None:
        self.heard = Heard()
        self.has_audio.clear()
        self.has_words.clear()
        self.has_stopped.clear()
        self.is_interrupted.clear()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        match frame:
            case TTSAudioRawFrame(audio=audio):
                self.heard.audio += audio
                self.has_audio.set()
            case TTSTextFrame(text=text, pts=pts_ns):
                self.heard.words.append(text)
                self.heard.starts_s.append((pts_ns or 0) / 1e9)
                if len(self.heard.words) >= _SOME_WORDS:
                    self.has_words.set()
            case TTSStoppedFrame():
                self.has_stopped.set()
            case InterruptionFrame():
                self.is_interrupted.set()
            case _:
                pass
        await self.push_frame(frame, direction)


SERVICES = (CartesiaTTSService, DeepgramTTSService, ElevenLabsTTSService, OpenAITTSService, VoicegateTTSService)


def service_of(configuration: str) -> FrameProcessor:
    """As docs/compatibility.md has it."""
    names: dict[str, Any] = {service.__name__: service for service in SERVICES}
    exec(configuration, names)
    tts: FrameProcessor = names["tts"]
    return tts


async def carry_out(plan: dict[str, Any]) -> list[dict[str, Any]]:
    ear = Ear()
    tts = service_of(plan["configuration"])
    worker = PipelineWorker(Pipeline([tts, ear]), cancel_on_idle_timeout=False)
    has_started = asyncio.Event()
    errors: list[str] = []

    @worker.event_handler("on_pipeline_started")
    async def _on_started(_worker: Any, _frame: Any) -> None:
        has_started.set()

    @tts.event_handler("on_error")
    async def _on_error(_tts: Any, frame: ErrorFrame) -> None:
        errors.append(frame.error)

    async def converse() -> list[Heard]:
        await has_started.wait()
        heard = []
        for turn in plan["turns"]:
            ear.begin()
            await speak(worker, ear, Turn(**turn))
            ear.heard.errors = list(errors)
            heard.append(ear.heard)
        if plan["turns"][-1].get("interrupted") != "by the end of the call":
            await worker.queue_frame(EndFrame())
        return heard

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    async with asyncio.timeout(_PATIENCE_S):
        _, heard = await asyncio.gather(runner.run(), converse())
    heard[-1].errors = errors
    return [{**asdict(each), "audio": base64.b64encode(each.audio).decode()} for each in heard]


async def speak(worker: PipelineWorker, ear: Ear, turn: Turn) -> None:
    await worker.queue_frame(LLMFullResponseStartFrame())
    await write(worker, turn.text)
    if turn.continued:
        await ear.has_audio.wait()
        await asyncio.sleep(turn.pause_s)
        await write(worker, turn.continued)
    if turn.interrupted in (None, "after it has ended"):
        await worker.queue_frame(LLMFullResponseEndFrame())
    if turn.interrupted is None:
        await ear.has_stopped.wait()
        return
    await ear.has_audio.wait()
    if turn.interrupted == "by the end of the call":
        await worker.cancel()
        return
    if turn.interrupted == "by an EndFrame":
        return
    await worker.queue_frame(InterruptionFrame())
    await ear.is_interrupted.wait()


async def write(worker: PipelineWorker, text: str) -> None:
    for word in text.split(" "):
        await worker.queue_frame(LLMTextFrame(f"{word} "))


async def main() -> None:
    logger.remove()
    while line := await asyncio.to_thread(sys.stdin.readline):
        told = await asyncio.gather(*map(carry_out, json.loads(line)))
        await asyncio.to_thread(print, json.dumps(told), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
