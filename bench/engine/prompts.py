"""First audio behind prompts of 25 lengths, one after the other: whether a prompt's length makes a voice slow to begin.

    python -m voicegate.bench.engine.prompts [--device cuda] [--model DIR] [--set NAME=VALUE] [--json FILE]

The voices are one voice whose prompt was cut to so many speech tokens and the 24 lengths below that: every place in a
flow block at which a prompt can end. One utterance at a time, a short text given whole, at the engine's seam; the
lengths in turn, round after round, so that a machine that slows down slows all of them.
"""

import argparse
import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from voicegate.bench import environment, results_file
from voicegate.bench.engine.__main__ import UsageError, with_settings
from voicegate.bench.engine.driver import Driver, Speech, driving
from voicegate.bench.engine.texts import Script
from voicegate.bench.sentences import SHORT
from voicegate.clients.bench.stats import summary
from voicegate.engine.config import DEVICES, EngineConfig
from voicegate.engine.interface import EngineError, SpeakingMode
from voicegate.engine.load.build import create_engine
from voicegate.engine.load.devices import resolved_for_device
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.units import FRAMES_PER_TOKEN
from voicegate.engine.voices.store import load_voices
from voicegate.engine.voices.voice import Voice, save_voice
from voicegate.gateway.logs import configure_logs

_NUM_LENGTHS: Final = 25  # speech tokens of a flow block


def shortened(voice: Voice, num_lengths: int) -> list[Voice]:
    """The prompt at that many lengths, the longest first. Raises UsageError where it is too short for them."""
    if voice.num_tokens < num_lengths:
        raise UsageError(f"voice {voice.name!r} has a prompt of {voice.num_tokens} tokens; {num_lengths} are needed")
    return [
        replace(
            voice,
            name=f"prompt-{num_tokens}",
            speech_tokens=voice.speech_tokens[:num_tokens],
            mel=voice.mel[: num_tokens * FRAMES_PER_TOKEN],
        )
        for num_tokens in range(voice.num_tokens, voice.num_tokens - num_lengths, -1)
    ]


async def measure(config: EngineConfig, voices: Sequence[Voice], *, rounds: int) -> dict[str, Any]:
    """Raises EngineError."""
    with TemporaryDirectory() as directory:
        for voice in voices:
            save_voice(voice, Path(directory) / f"{voice.name}.safetensors")
        engine = create_engine(replace(config, voices_dir=Path(directory)))
        await engine.start()
    found: defaultdict[int, list[float]] = defaultdict(list)
    try:
        async with driving(engine, Speech(SpeakingMode.CLAUSE)) as driver:
            for number in range(rounds + 1):
                for voice in voices:
                    first_audio_ms = await _first_audio_ms(driver, voice.name)
                    if number:  # the first round warms up
                        found[voice.num_tokens].append(first_audio_ms)
    finally:
        await engine.close()
    medians_ms = [ms["p50"] for each in found.values() if (ms := summary(each)) is not None]
    return {
        "first_audio_ms": summary([ms for each in found.values() for ms in each]),
        "fastest_prompt_p50_ms": min(medians_ms),
        "slowest_prompt_p50_ms": max(medians_ms),
        "by_prompt_tokens": {num_tokens: summary(each) for num_tokens, each in found.items()},
    }


async def _first_audio_ms(driver: Driver, voice: str) -> float:
    """Raises EngineError with what the engine said, if it made none."""
    stream = driver.start(Script(SHORT, (SHORT,), 0.0), voice, lead_ms=driver.engine.info.max_lead_ms)
    await stream.ended
    if stream.failure is not None:
        raise EngineError(stream.failure)
    return stream.judged(time.monotonic()).first_audio_ms


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m voicegate.bench.engine.prompts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", type=Path, default=environment.REPOSITORY / "models" / "tiny", metavar="DIR")
    parser.add_argument("--device", choices=DEVICES, default="auto", help="(default: %(default)s)")
    parser.add_argument("--voice", help="whose prompt is cut (default: the model's first)")
    parser.add_argument("--lengths", type=int, default=_NUM_LENGTHS, help="how many (default: all of a flow block)")
    parser.add_argument("--rounds", type=int, default=4, help="utterances of each length (default: %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a field of EngineConfig")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    configure_logs("error", "console")
    try:
        config = with_settings(resolved_for_device(EngineConfig(options.model, device=options.device)), options.set)
        voices = load_voices(config.model_dir, load_model_config(config.model_dir))
        if options.voice is not None and options.voice not in voices:
            raise UsageError(f"no voice {options.voice!r}; there are {', '.join(voices)}")
        voice = voices[options.voice or next(iter(voices))]
        measured = asyncio.run(measure(config, shortened(voice, options.lengths), rounds=options.rounds))
    except (UsageError, EngineError, ValueError) as error:
        print(f"bench.engine.prompts: {error}", file=sys.stderr)
        return 1
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(config).items()}
    report = {"environment": environment.describe(), "config": settings, **measured}
    results_file.save(report, options.json)
    for num_tokens, found in measured["by_prompt_tokens"].items():
        print(f"prompt of {num_tokens:>4} tokens: first audio p50 {found['p50']:.1f} ms, worst {found['max']:.1f}")
    overall = measured["first_audio_ms"]
    print(f"all: p50 {overall['p50']:.1f} ms, p95 {overall['p95']:.1f}, worst {overall['max']:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
