"""Speech of text that comes as an agent writes it: how soon, with which gaps, and how well, by mode and pace.

    python -m voicegate.bench.pace [--modes clause bistream incremental] [--rates 3 5 10 20 40 60] [--json FILE]

On a clock of its own (simulation.py): the figures count the text's time and, where --step-ms says so, the engine's.
Heard by pocketsphinx: compare rows of one run, over hundreds of words. `whole`: the same text given at once, by clause.
"""

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from voicegate.bench import environment, results_file, sentences
from voicegate.bench.pace.measures import final_rise, pauses_s
from voicegate.bench.pace.simulation import Simulation, Spoken, StepTimes
from voicegate.bench.pace.writer import Pace, Pieces, written
from voicegate.bench.recogniser import Recogniser, words_of
from voicegate.bench.word_errors import word_errors
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import SpeakingMode
from voicegate.engine.loading.build import load_stages, set_threads
from voicegate.engine.model.config import load_model_config
from voicegate.engine.units import SAMPLE_RATE_HZ
from voicegate.engine.voices.store import load_voices

_TEXTS: Final = (*sentences.EVERYDAY, *sentences.AGENT)
_GAP_S: Final = 0.02  # shorter ones no player's prebuffer lets through


@dataclass(frozen=True, slots=True)
class Case:
    mode: SpeakingMode
    pace: Pace

    @property
    def name(self) -> str:
        if self.pace.pieces is Pieces.WHOLE:
            return "whole"
        extras = [f"jitter {self.pace.jitter:g}"] * bool(self.pace.jitter)
        extras += [f"stall {self.pace.stall_s:g} s"] * bool(self.pace.stall_s)
        return " ".join([self.mode.value, f"{self.pace.words_per_s:g}/s", *extras])


def cases(modes: Sequence[SpeakingMode], rates: Sequence[float], *, pieces: Pieces, has_rough: bool) -> Iterator[Case]:
    """Steady at every rate; then, with `has_rough`, jitter and a stall at the rate in the middle."""
    yield Case(SpeakingMode.CLAUSE, Pace(1.0, pieces=Pieces.WHOLE))
    for mode in modes:
        for rate in rates:
            yield Case(mode, Pace(rate, pieces=pieces))
        if has_rough:
            middle = sorted(rates)[len(rates) // 2]
            yield Case(mode, Pace(middle, jitter=1.0, pieces=pieces))
            yield Case(mode, Pace(middle, stall_s=1.5, pieces=pieces))


class Measured:
    """Of one case: what was heard of its sentences, added up."""

    def __init__(self) -> None:
        self._first_s: list[float] = []
        self._gaps_s: list[float] = []
        self._pauses_s: list[float] = []
        self._rises: list[float] = []
        self._num_errors = self._num_words = self._num_with_gap = 0
        self._audio_s = 0.0

    def add(self, text: str, spoken: Spoken, heard: list[str]) -> None:
        wanted = words_of(text)
        self._num_errors += word_errors(wanted, heard)
        self._num_words += len(wanted)
        self._first_s.append(spoken.first_audio_s)
        gaps_s = [gap_s for gap_s in spoken.gaps_s if gap_s >= _GAP_S]
        self._gaps_s += gaps_s
        self._num_with_gap += bool(gaps_s)
        self._pauses_s += pauses_s(spoken.samples)
        self._audio_s += len(spoken.samples) / SAMPLE_RATE_HZ
        rise = final_rise(spoken.samples) if text.endswith("?") else None
        if rise is not None:
            self._rises.append(rise)

    def report(self) -> dict[str, Any]:
        first_ms = np.array(self._first_s) * 1000
        return {
            "errors": self._num_errors,
            "words": self._num_words,
            "first_audio_ms": {f"p{share}": round(float(np.percentile(first_ms, share))) for share in (50, 95)},
            "with_gap": round(self._num_with_gap / len(self._first_s), 3),
            "worst_gap_ms": round(1000 * max(self._gaps_s, default=0.0)),
            "audio_s": round(self._audio_s, 1),
            "pauses_s": round(sum(self._pauses_s), 1),
            "question_rise_semitones": round(float(np.mean(self._rises)), 2) if self._rises else None,
        }


def measure(simulation: Simulation, case: Case, voices: Sequence[str], num_seeds: int) -> dict[str, Any]:
    recogniser, measured = Recogniser(), Measured()
    for seed in range(num_seeds):
        for index, text in enumerate(_TEXTS):
            for voice in voices:
                number = seed * len(_TEXTS) + index
                pieces = written(text, case.pace, random.Random(number))
                spoken = simulation.speak(pieces, voice, case.mode, seed=number)
                measured.add(text, spoken, recogniser.words(spoken.samples, SAMPLE_RATE_HZ))
    pace = asdict(case.pace) | {"pieces": case.pace.pieces.value}
    return {"mode": case.mode.value, "pace": pace, **measured.report()}


def line(name: str, row: dict[str, Any]) -> str:
    first = row["first_audio_ms"]
    cells = (
        f"{name:<28} {row['errors']:>5}/{row['words']} {first['p50']:>6}/{first['p95']:<6}",
        f"{100 * row['with_gap']:>5.1f} % {row['worst_gap_ms']:>6} {row['audio_s']:>8.1f} {row['pauses_s']:>7.1f}",
        f"{row['question_rise_semitones']!s:>6}",
    )
    return " ".join(cells)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=environment.REPOSITORY / "models" / "tiny")
    parser.add_argument("--voices", nargs="+", default=["rms", "slt"])
    modes = [mode.value for mode in SpeakingMode if mode is not SpeakingMode.AUTO]
    parser.add_argument("--modes", nargs="+", default=modes, choices=modes)
    parser.add_argument("--rates", nargs="+", type=float, default=[3, 5, 10, 20, 40, 60], help="words a second")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--pieces", default="leading", choices=["leading", "trailing"], help="where words' blanks go")
    parser.add_argument("--smooth", action="store_true", help="leave jitter and stalls out")
    parser.add_argument("--step-ms", nargs=2, type=float, default=[0, 0], metavar=("LLM", "EULER"))
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    return parser


def main() -> None:
    options = parser().parse_args()
    config = EngineConfig(options.model, device="cpu", threads=options.threads).resolved("cpu")
    set_threads(config)
    model = load_model_config(options.model)
    stages = load_stages(config, model, load_voices(options.model, model))
    llm_ms, euler_ms = options.step_ms
    simulation = Simulation(config, stages, StepTimes(llm_ms / 1000, euler_ms / 1000))
    modes = [SpeakingMode(mode) for mode in options.modes]
    rows: dict[str, Any] = {}
    report = {"environment": environment.describe(), "step_ms": options.step_ms, "rows": rows}
    print(
        f"{'':<28} {'errors':>10} {'first p50/p95':>13} {'with gap':>9} {'worst':>5} {'audio s':>8} {'pauses':>7} rise"
    )
    for case in cases(modes, options.rates, pieces=Pieces(options.pieces), has_rough=not options.smooth):
        rows[case.name] = measure(simulation, case, options.voices, options.seeds)
        print(line(case.name, rows[case.name]), flush=True)
        if options.json is not None:
            results_file.save(report, options.json)


if __name__ == "__main__":
    main()
