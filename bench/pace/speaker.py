"""Speaks one sentence as it is written, and hears it: the work of one process of many, each with the models in it."""

import random
from dataclasses import dataclass
from typing import Final

from voicegate.bench.pace.measures import final_rise, pauses_s
from voicegate.bench.pace.simulation import IDLE, BlockTimes, Simulation, StepTimes
from voicegate.bench.pace.writer import Pace, Pieces, written
from voicegate.bench.recogniser import Recogniser, words_of
from voicegate.bench.word_errors import word_errors
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import SpeakingMode
from voicegate.engine.load.build import load_stages, set_threads
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.units import SAMPLE_RATE_HZ
from voicegate.engine.voices.store import load_voices

_GAP_S: Final = 0.02  # shorter ones no player's prebuffer lets through


@dataclass(frozen=True, slots=True)
class Case:
    mode: SpeakingMode
    pace: Pace
    others: BlockTimes = IDLE

    @property
    def name(self) -> str:
        if self.pace.pieces is Pieces.WHOLE:
            return "whole"
        extras = [f"jitter {self.pace.jitter:g}"] * bool(self.pace.jitter)
        extras += [f"stall {self.pace.stall_s:g} s"] * bool(self.pace.stall_s)
        extras += [f"blocks {self.others.first_s:g}:{self.others.later_s:g} s"] * (self.others != IDLE)
        return " ".join([self.mode.value, f"{self.pace.words_per_s:g}/s", *extras])


@dataclass(frozen=True, slots=True)
class Job:
    """A sentence to be spoken and heard."""

    case: Case
    text: str
    voice: str
    seed: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one utterance."""

    num_errors: int
    num_words: int
    first_audio_s: float
    gaps_s: tuple[float, ...]
    pauses_s: tuple[float, ...]
    rise: float | None  # of a question
    audio_s: float
    num_first_blocks: int


class Speaker:
    """Speaks and hears, in a process of its own."""

    def __init__(self, config: EngineConfig, times: StepTimes) -> None:
        set_threads(config)
        model = load_model_config(config.model_dir)
        self._config, self._times = config, times
        self._stages = load_stages(config, model, load_voices(config.model_dir, model))
        self._simulations: dict[BlockTimes, Simulation] = {}
        self._recogniser = Recogniser()

    def speak(self, job: Job) -> Outcome:
        pieces = written(job.text, job.case.pace, random.Random(job.seed))
        spoken = self._among(job.case.others).speak(pieces, job.voice, job.case.mode, seed=job.seed)
        wanted, heard = words_of(job.text), self._recogniser.words(spoken.samples, SAMPLE_RATE_HZ)
        return Outcome(
            num_errors=word_errors(wanted, heard),
            num_words=len(wanted),
            first_audio_s=spoken.first_audio_s,
            gaps_s=tuple(gap_s for gap_s in spoken.gaps_s if gap_s >= _GAP_S),
            pauses_s=tuple(pauses_s(spoken.samples)),
            rise=final_rise(spoken.samples) if job.text.endswith("?") else None,
            audio_s=len(spoken.samples) / SAMPLE_RATE_HZ,
            num_first_blocks=spoken.num_first_blocks,
        )

    def _among(self, others: BlockTimes) -> Simulation:
        """An engine of its own for each: it remembers what blocks took."""
        if others not in self._simulations:
            self._simulations[others] = Simulation(self._config, self._stages, self._times, others=others)
        return self._simulations[others]


_speaker: Speaker | None = None  # of a worker process


def open_speaker(config: EngineConfig, times: StepTimes) -> None:
    global _speaker
    _speaker = Speaker(config, times)


def speak(job: Job) -> Outcome:
    assert _speaker is not None
    return _speaker.speak(job)
