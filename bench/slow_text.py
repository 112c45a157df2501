"""How long speech takes, and how it is understood, by how fast its text is written: word by word, beside whole text.

    python -m voicegate.bench.slow_text [--rates 1 2 3 5 10] [--texts 6] [--set stall_ms=0] [--json FILE]
        [--recogniser whisper]

The engine answers at once on a clock of its own: only the text is waited for. Heard by pocketsphinx, a weak recogniser,
or by Whisper: compare rows of one run. A word comes with the blank before it, as from an LLM.
"""

import argparse
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from voicegate.bench import environment, recogniser, results_file, sentences
from voicegate.bench.engine.__main__ import with_settings
from voicegate.bench.word_errors import word_errors
from voicegate.engine import units
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.core import EngineCore
from voicegate.engine.interface import (
    AudioFormat,
    AudioReady,
    Codec,
    Done,
    EngineEvent,
    SpeakingMode,
    UtteranceId,
    UtteranceRequest,
)
from voicegate.engine.load.build import load_stages, set_threads
from voicegate.engine.load.devices import resolved_for_device
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.store import load_voices


@dataclass(frozen=True, slots=True)
class Spoken:
    audio_s: float
    first_audio_s: float  # after the first word came
    num_errors: int
    num_words: int


class Writer:
    """Writes texts to one engine, on its clock."""

    def __init__(self, config: EngineConfig, heard_by: str) -> None:
        set_threads(config)
        config = resolved_for_device(config)
        model = load_model_config(config.model_dir)
        stages = load_stages(config, model, load_voices(config.model_dir, model))
        self._now_s = 0.0
        self._events: list[EngineEvent] = []
        self._heard: list[tuple[float, bytes]] = []
        self._core = EngineCore(config, stages, lambda: self._now_s, self._take)
        self._recogniser = recogniser.recogniser_of(heard_by)
        self._numbers = count()

    def write(self, text: str, voice: str, words_per_s: float, *, seed: int) -> Spoken:
        """One utterance; infinitely many words a second: the text is given whole. Raises RuntimeError if it fails."""
        utterance_id = UtteranceId(f"slow {next(self._numbers)}")
        begun_s = self._now_s
        self._events.clear()
        self._heard.clear()
        audio = AudioFormat(Codec.PCM_S16LE)
        self._core.submit(UtteranceRequest(utterance_id, voice, audio, SpeakingMode.INCREMENTAL), seed=seed)
        for number, piece in enumerate(_pieces(text, words_per_s)):
            self._run(until_s=begun_s + number / words_per_s)
            self._core.push_text(utterance_id, piece)
        self._core.end_text(utterance_id)
        self._run(until_s=math.inf)
        if not isinstance(self._events[-1], Done):
            raise RuntimeError(f"no end of {text!r}: {self._events[-1]}")
        samples = np.frombuffer(b"".join(data for _, data in self._heard), "<i2")
        wanted = recogniser.words_of(text)
        return Spoken(
            audio_s=len(samples) / units.SAMPLE_RATE_HZ,
            first_audio_s=self._heard[0][0] - begun_s,
            num_errors=word_errors(wanted, self._recogniser.words(samples, units.SAMPLE_RATE_HZ)),
            num_words=len(wanted),
        )

    def _run(self, *, until_s: float) -> None:
        """To this moment; infinite: as long as anything will happen by itself."""
        while True:
            decision = self._core.step()
            if not decision.is_idle:
                continue
            wake_s = math.inf if decision.wake_at_s is None else decision.wake_at_s
            if wake_s >= until_s:
                self._now_s = self._now_s if until_s == math.inf else until_s
                return
            self._now_s = max(wake_s, self._now_s)

    def _take(self, events: Sequence[EngineEvent]) -> None:
        self._events += events
        self._heard += [(self._now_s, b"".join(each.packets)) for each in events if isinstance(each, AudioReady)]


def _pieces(text: str, words_per_s: float) -> list[str]:
    return [text] if words_per_s == math.inf else re.findall(r"\s*\S+", text)


def rows(
    writer: Writer, texts: Sequence[str], voices: Sequence[str], rates: Sequence[float]
) -> Iterator[dict[str, Any]]:
    """Rows of whole texts first, to which the others are compared."""
    whole_s = math.nan
    for rate in (math.inf, *rates):
        spoken = [writer.write(text, voice, rate, seed=seed) for seed, text in enumerate(texts) for voice in voices]
        audio_s = sum(each.audio_s for each in spoken)
        whole_s = audio_s if rate == math.inf else whole_s
        yield {
            "words_per_s": None if rate == math.inf else rate,
            "audio_s": round(audio_s, 1),
            "longer_than_whole": round(audio_s / whole_s - 1, 3),
            "first_audio_s": round(float(np.median([each.first_audio_s for each in spoken])), 2),
            "errors": sum(each.num_errors for each in spoken),
            "words": sum(each.num_words for each in spoken),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=environment.REPOSITORY / "models" / "tiny")
    parser.add_argument("--voices", nargs="+", default=["woman", "man"])
    parser.add_argument("--rates", nargs="+", type=float, default=[1, 2, 3, 5, 10], help="words a second")
    parser.add_argument("--texts", type=int, default=6, help="how many sentences of an agent (default: 6)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="an EngineConfig field")
    parser.add_argument("--json", type=Path)
    recogniser.add_option(parser)
    options = parser.parse_args()
    writer = Writer(with_settings(EngineConfig(options.model, device="cpu"), options.set), options.recogniser)
    found: list[dict[str, Any]] = []
    described = {
        "environment": environment.describe(),
        "recogniser": options.recogniser,
        "set": options.set,
        "rows": found,
    }
    print(f"{'words/s':>8} {'speech s':>9} {'longer':>8} {'first s':>8} {'errors':>9}")
    for row in rows(writer, sentences.AGENT[: options.texts], options.voices, options.rates):
        found.append(row)
        pace = row["words_per_s"] or "whole"
        errors = f"{row['errors']}/{row['words']}"
        longer = f"{100 * row['longer_than_whole']:+.0f} %"
        print(f"{pace:>8} {row['audio_s']:>9} {longer:>8} {row['first_audio_s']:>8} {errors:>9}", flush=True)
        if options.json is not None:
            results_file.save(described, options.json)


if __name__ == "__main__":
    main()
