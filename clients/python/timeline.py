"""A listener's experience, computed from when packets arrived. Pure: no clock, no sockets, no decoder.

Arrivals are in order of their pts; times are seconds of one monotonic clock, audio counts 48 kHz samples. A
**virtual player** begins when its prebuffer is full (or the stream has ended), plays in real time, and stands
still while it has nothing: an **underrun**. It goes on with the first packet that comes, without filling up again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_CLOCK_HZ: Final = 48_000
_CLOCK_PER_MS: Final = _CLOCK_HZ // 1000
# Below this a gap is the clock's own grain, not silence that anybody hears.
_LEAST_UNDERRUN_S: Final = 0.0005
PREBUFFERS_MS: Final = (0, 80, 200)
# A message so soon after the one before it is of the same chunk: our gateway sends the engine's first as two.
# Lower -> a chunk that a busy machine receives in parts passes for two; higher -> two of a fast server for one.
_SAME_CHUNK_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class Arrival:
    """One audio message, or one packet."""

    arrived_s: float
    pts_48k: int
    duration_48k: int


@dataclass(frozen=True, slots=True)
class Underruns:
    gaps_s: tuple[float, ...]

    @property
    def num(self) -> int:
        return len(self.gaps_s)

    @property
    def worst_s(self) -> float:
        return max(self.gaps_s, default=0.0)

    @property
    def total_s(self) -> float:
        return math.fsum(self.gaps_s)


@dataclass(frozen=True, slots=True)
class Playback:
    prebuffer_ms: int
    start_s: float  # on the clock of the arrivals
    underruns: Underruns


@dataclass(frozen=True, slots=True)
class Timeline:
    """Timeline of one context; durations, so free of any clock."""

    first_audio_s: float  # first text sent -> first packet here (arrival, not yet audible)
    generation_s: float  # first text sent -> last packet here
    audio_s: float
    playbacks: tuple[Playback, ...]
    is_one_chunk: bool  # continuity says nothing then

    @property
    def rtf(self) -> float:
        """Generation time / audio; text that comes slowly, and the server's lead, make it larger."""
        return self.generation_s / self.audio_s if self.audio_s else math.inf

    def playback(self, prebuffer_ms: int) -> Playback:
        """Raises KeyError for a prebuffer that was not measured."""
        for playback in self.playbacks:
            if playback.prebuffer_ms == prebuffer_ms:
                return playback
        raise KeyError(prebuffer_ms)

    def is_continuous(self, limit_ms: int) -> bool | None:
        """C50, C100, ...: no underrun of a player without prebuffer is longer. None: came in one chunk."""
        if self.is_one_chunk:
            return None
        return self.playback(0).underruns.worst_s * 1000 <= limit_ms


def measure(
    first_text_s: float,
    arrivals: Sequence[Arrival],
    *,
    pre_skip_48k: int = 0,
    end_pts_48k: int | None = None,
    prebuffers_ms: Sequence[int] = PREBUFFERS_MS,
) -> Timeline:
    """Empty messages count for nothing; `end_pts_48k` trims. Raises ValueError where no audio came.

    `prebuffers_ms` must hold 0 for `is_continuous`.
    """
    heard = [arrival for arrival in arrivals if arrival.duration_48k]
    if not heard:
        raise ValueError("no audio arrived")
    received_48k = heard[-1].pts_48k + heard[-1].duration_48k
    end_48k = received_48k if end_pts_48k is None else end_pts_48k
    return Timeline(
        first_audio_s=heard[0].arrived_s - first_text_s,
        generation_s=heard[-1].arrived_s - first_text_s,
        audio_s=(end_48k - pre_skip_48k - heard[0].pts_48k) / _CLOCK_HZ,
        playbacks=tuple(play(heard, prebuffer_ms) for prebuffer_ms in prebuffers_ms),
        is_one_chunk=len(chunks(heard)) == 1,
    )


def play(arrivals: Sequence[Arrival], prebuffer_ms: int) -> Playback:
    """The virtual player. Raises ValueError where there is nothing to play."""
    start_s = _start_s(arrivals, prebuffer_ms * _CLOCK_PER_MS)
    gaps_s: list[float] = []
    empty_s = start_s  # when the player has played all that it was given
    for arrival in arrivals:
        gap_s = arrival.arrived_s - empty_s
        if gap_s > _LEAST_UNDERRUN_S:
            gaps_s.append(gap_s)
            empty_s = arrival.arrived_s
        empty_s += arrival.duration_48k / _CLOCK_HZ
    return Playback(prebuffer_ms, start_s, Underruns(tuple(gaps_s)))


def chunks(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """Chunks: messages that came together, as one. Messages are the wire's matter, chunks are what a server makes at a
    time."""
    found = list(arrivals[:1])
    for before, arrival in pairwise(arrivals):
        if arrival.arrived_s - before.arrived_s > _SAME_CHUNK_S:
            found.append(arrival)
        else:
            begun = found[-1]
            found[-1] = Arrival(begun.arrived_s, begun.pts_48k, begun.duration_48k + arrival.duration_48k)
    return found


def _start_s(arrivals: Sequence[Arrival], prebuffer_48k: int) -> float:
    if not arrivals:
        raise ValueError("nothing to play")
    buffered_48k = 0
    for arrival in arrivals:
        buffered_48k += arrival.duration_48k
        if buffered_48k >= prebuffer_48k:
            return arrival.arrived_s
    return arrivals[-1].arrived_s
