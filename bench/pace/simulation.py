"""The real engine core on a clock of its own: text comes when it is to come, and every step takes what it is told to.

So minutes of speech at any pace of text are measured as fast as this machine computes, and always with the same result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import numpy as np
import numpy.typing as npt

from voicegate.bench.pace.writer import Piece
from voicegate.engine.audio.outlet import Sink
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.clause import Clause
from voicegate.engine.core.core import EngineCore
from voicegate.engine.core.policy import Decision
from voicegate.engine.core.readings import FirstBlock
from voicegate.engine.core.stages import Stages
from voicegate.engine.core.utterance import Utterance
from voicegate.engine.interface import (
    AudioFormat,
    AudioReady,
    Cancelled,
    Codec,
    Done,
    EngineEvent,
    Failed,
    SpeakingMode,
    UtteranceId,
    UtteranceRequest,
)
from voicegate.engine.units import SAMPLE_RATE_HZ

# Limit of a run that hangs: a sentence is over in seconds.
_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Times that a step takes of the clock. All 0: the engine answers at once, and only the text is waited for."""

    llm_s: float = 0.0
    euler_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BlockTimes:
    """Times of blocks of others' streams, as the engine is told at each step; none of it passes on the clock."""

    first_s: float = 0.0
    later_s: float = 0.0


IDLE: Final = BlockTimes()


class _BusyCore(EngineCore):
    """Begins sentences as it would among others' streams, and keeps with how many speech tokens."""

    def __init__(
        self,
        config: EngineConfig,
        stages: Stages,
        clock: Callable[[], float],
        sink: Sink,
        others: BlockTimes,
    ) -> None:
        super().__init__(config, stages, clock, sink)
        self._others = others
        self.num_begun_tokens: int | None = None  # of the last first reading of text that grew
        first_block = self._readings.first_block

        def noted(utterance: Utterance, clause: Clause, now_s: float, *, are_many: bool) -> FirstBlock:
            found = first_block(utterance, clause, now_s, are_many=are_many)
            self.num_begun_tokens = found.until
            return found

        self._readings.first_block = noted  # type: ignore[method-assign]

    def step(self) -> Decision:
        if self._others != IDLE:
            times, now_s = self._readings.block_time, self._clock()
            times.took(0.0, now_s, is_first=True)  # at the quickest; strain is told by the difference
            times.took(self._others.first_s, now_s, is_first=True)
            times.took(self._others.later_s, now_s, is_first=False)
        return super().step()


@dataclass(slots=True)
class Spoken:
    """Speech as a listener had it, in seconds since the first piece of text came."""

    first_audio_s: float = 0.0
    gaps_s: list[float] = field(default_factory=list)  # silences of a player without a prebuffer
    samples: npt.NDArray[np.int16] = field(default_factory=lambda: np.empty(0, np.int16))
    num_first_blocks: int = 0  # of the first reading; 0: the sentence was whole by then


class Simulation:
    def __init__(self, config: EngineConfig, stages: Stages, times: StepTimes, *, others: BlockTimes = IDLE) -> None:
        self._stages = stages
        self._now_s = 0.0
        self._times = times
        self._events: list[tuple[float, EngineEvent]] = []
        self._core = _BusyCore(config, stages, lambda: self._now_s, self._take, others)
        self._numbers = count()

    def speak(self, pieces: Sequence[Piece], voice: str, mode: SpeakingMode, *, seed: int) -> Spoken:
        """One utterance, alone. Raises RuntimeError where the engine fails it."""
        utterance_id = UtteranceId(f"paced {next(self._numbers)}")
        begun_s = self._now_s
        self._events.clear()
        self._core.num_begun_tokens = None
        self._core.submit(UtteranceRequest(utterance_id, voice, AudioFormat(Codec.PCM_S16LE), mode), seed=seed)
        waiting = list(pieces)
        while not (self._events and isinstance(self._events[-1][1], Done | Failed | Cancelled)):
            while waiting and begun_s + waiting[0].at_s <= self._now_s:
                self._core.push_text(utterance_id, waiting.pop(0).text)
                if not waiting:
                    self._core.end_text(utterance_id)
            self._step(begun_s + waiting[0].at_s if waiting else None)
            if self._now_s - begun_s > _LIMIT_S:
                raise RuntimeError("the utterance does not end")
        spoken = _heard(self._events, begun_s)
        spoken.num_first_blocks = self._num_first_blocks(voice)
        return spoken

    def _num_first_blocks(self, voice: str) -> int:
        if (num_begun_tokens := self._core.num_begun_tokens) is None:
            return 0
        prompt, lookahead_tokens = self._stages.voices[voice].flow_prompt, self._stages.flow.lookahead_tokens
        num_behind_first = num_begun_tokens - lookahead_tokens - prompt.first_block_tokens
        return 1 + num_behind_first // prompt.second_block_tokens

    def _step(self, next_text_s: float | None) -> None:
        decision = self._core.step()
        if decision.llm is not None:
            self._now_s += self._times.llm_s
        if decision.flow is not None:
            self._now_s += self._times.euler_s
        if not decision.is_idle:
            return
        wakes = [each_s for each_s in (decision.wake_at_s, next_text_s) if each_s is not None]
        if wakes:
            self._now_s = max(min(wakes), self._now_s)

    def _take(self, events: Sequence[EngineEvent]) -> None:
        self._events += [(self._now_s, event) for event in events]


def _heard(events: Sequence[tuple[float, EngineEvent]], begun_s: float) -> Spoken:
    spoken, pcm, plays_until_s = Spoken(), [], None
    for at_s, event in events:
        if isinstance(event, Failed):
            raise RuntimeError(event.message)
        if not isinstance(event, AudioReady):
            continue
        if plays_until_s is None:
            spoken.first_audio_s = at_s - begun_s
            plays_until_s = at_s
        elif at_s > plays_until_s:
            spoken.gaps_s.append(at_s - plays_until_s)
            plays_until_s = at_s
        data = b"".join(event.packets)
        plays_until_s += len(data) / 2 / SAMPLE_RATE_HZ
        pcm.append(data)
    spoken.samples = np.frombuffer(b"".join(pcm), "<i2")
    return spoken
