"""`make demo`: the tiny model behind a real socket speaks a paragraph that arrives as an LLM would write it.

python -m voicegate.bench.demo [--tokens-per-s 30] [--voice woman] [--mode auto] [--seed 1] [--directory .]
"""

import argparse
import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from voicegate.clients.python.audio import Audio
from voicegate.clients.python.client import connect
from voicegate.clients.python.context import Context
from voicegate.clients.python.errors import GateError, MissingDependency
from voicegate.clients.python.files import write_audio
from voicegate.clients.python.playback import PREBUFFER_MS, SoundCard
from voicegate.clients.python.recording import record
from voicegate.clients.python.report import timeline_of
from voicegate.engine.interface import EngineError
from voicegate.gateway.cli.terminal import CommandError
from voicegate.gateway.config import GatewayConfig, tiny_model_dir
from voicegate.gateway.config_fields import ConfigError

PARAGRAPH: Final = (
    "Good morning, Emma, and thank you for waiting. Your train to the coast leaves in 25 minutes. "
    "It looks like it is going to rain this afternoon, so please take a coat. "
    "Is there anything else that I can do for you today?"
)
# About as an LLM's tokenizer cuts English: short words whole with their space, long ones in parts.
_TOKEN: Final = re.compile(r"\s?[^\W\d]{1,6}|\s?\d{1,3}|\s?[^\w\s]|\s")


class Clock:
    """Lines of the timeline, in seconds since the demo began."""

    def __init__(self) -> None:
        self._start_s = time.perf_counter()

    def tell(self, text: str) -> None:
        print(f"{time.perf_counter() - self._start_s:8.2f} s  {text}", flush=True)


def tokens_of(text: str) -> list[str]:
    """Pieces that make `text` again."""
    return _TOKEN.findall(text)


async def as_an_llm_writes(text: str, tokens_per_s: float, clock: Clock) -> AsyncIterator[str]:
    """Each token at its time; a late one is not made up for by rushing the next."""
    for number, token in enumerate(tokens_of(text)):
        if number:
            await asyncio.sleep(1 / tokens_per_s)
        else:
            clock.tell(f"first text sent: {token!r}")
        yield token
    clock.tell("last text sent")


async def speak(context: Context, options: argparse.Namespace, clock: Clock) -> list[Audio]:
    """Through the sound card too, where there is one."""

    def hear(audio: Audio) -> None:
        if audio.is_first:
            clock.tell("first packet received")
        if audio.is_last:
            clock.tell("end of audio")

    text = as_an_llm_writes(options.text, options.tokens_per_s, clock)
    try:
        card = SoundCard(context.opened)
    except MissingDependency as error:
        clock.tell(f"not playing: {error}")
        return await record(context, text, hear)

    def play(audio: Audio) -> None:
        hear(audio)
        card.play(audio)

    async with card:
        audio = await record(context, text, play)
        await card.drained()
    return audio


def write_files(context: Context, audio: list[Audio], directory: Path) -> list[Path]:
    paths = [directory / "demo.wav", directory / "demo.opus"]
    for path in paths:
        write_audio(path, context.opened, audio)
    return paths


def print_timeline(context: Context, audio: list[Audio]) -> None:
    timeline = timeline_of(context, audio)
    if timeline is None:
        print("\n  there was nothing to say")
        return
    underruns = timeline.playback(PREBUFFER_MS).underruns
    worst = f" (worst {underruns.worst_s * 1000:.0f} ms)" if underruns.num else ""
    rows = [
        ("time to first audio", f"{timeline.first_audio_s * 1000:.0f} ms after the first text"),
        ("audio duration", f"{timeline.audio_s:.2f} s"),
        ("real-time factor", f"{timeline.rtf:.2f}, with the time the text took to be written"),
        ("underruns", f"{underruns.num}{worst}, for a player that buffers {PREBUFFER_MS} ms"),
    ]
    print()
    for label, value in rows:
        print(f"  {label:<22}{value}")


async def demo(options: argparse.Namespace) -> None:
    clock = Clock()
    clock.tell(f"loading the model in {tiny_model_dir()}")
    # They import torch, which takes a while itself.
    from voicegate.engine.load.progress import Lines  # noqa: PLC0415
    from voicegate.gateway.cli.local import local_gateway  # noqa: PLC0415
    from voicegate.gateway.logs import configure_logs  # noqa: PLC0415

    configure_logs("warning", "console")
    async with AsyncExitStack() as stack:
        config = GatewayConfig(device=options.device, threads=options.threads)
        url = await stack.enter_async_context(local_gateway(config, Lines(lambda part: clock.tell(f"  {part}"))))
        gate = await stack.enter_async_context(connect(url))
        clock.tell(f"engine ready: {url}, voices {', '.join(gate.ready.voices)}")
        # The audio is for files, if also for ears: nothing is gained by holding the engine back to real time.
        lead_ms = gate.ready.limits.lead_ms
        context = await gate.open(voice=options.voice, mode=options.mode, seed=options.seed, lead_ms=lead_ms)
        print(f"\n  “{options.text}”\n")
        audio = await speak(context, options, clock)
    print_timeline(context, audio)
    paths = write_files(context, audio, options.directory)
    print(f"  {'files':<22}{', '.join(map(str, paths))}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", default=PARAGRAPH)
    parser.add_argument("--tokens-per-s", type=float, default=30.0, help="pace of the text (default: 30)")
    parser.add_argument("--voice", help="(default: the model's)")
    parser.add_argument("--mode", choices=("auto", "incremental", "clause", "bistream"), default="auto")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--threads", type=int, help="of the engine on a CPU (default: one per core)")
    parser.add_argument("--directory", type=Path, default=Path(), help="for demo.wav and demo.opus")
    options = parser.parse_args()
    try:
        asyncio.run(demo(options))
    except (CommandError, ConfigError, EngineError, GateError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):  # the second where the loop was not running yet
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
