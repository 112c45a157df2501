"""What a listener would have experienced, from when packets arrived. Pure: no clock, no sockets, no decoder.

Arrivals are in order of their pts; times are seconds of one monotonic clock, audio counts 48 kHz samples. A
**virtual player** begins when its prebuffer is full (or the stream has ended), plays in real time, and stands
still while it has nothing: an **underrun**. It goes on with the first packet that comes, without filling up again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_CLOCK_HZ: Final = 48_000
_CLOCK_PER_MS: Final = _CLOCK_HZ // 1000
# Below this a gap is the clock's own grain, not silence that anybody hears.
_LEAST_UNDERRUN_S: Final = 0.0005
PREBUFFERS_MS: Final = (0, 80, 200)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One audio message, or one packet."""

    arrived_s: float
    pts_48k: int
    duration_48k: int


@dataclass(frozen=True, slots=True)
class Underruns:
    num: int
    worst_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class Playback:
    prebuffer_ms: int
    start_s: float  # on the clock of the arrivals
    underruns: Underruns


@dataclass(frozen=True, slots=True)
class Timeline:
    """Of one context; durations, so free of any clock."""

    first_audio_s: float  # first text sent -> first packet here (arrival, not yet audible)
    generation_s: float  # first text sent -> last packet here
    audio_s: float
    playbacks: tuple[Playback, ...]
    is_one_message: bool  # continuity says nothing then

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
        """C50, C100, ...: no underrun of a player without prebuffer is longer. None: came in one message."""
        if self.is_one_message:
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
        is_one_message=len(heard) == 1,
    )


def play(arrivals: Sequence[Arrival], prebuffer_ms: int) -> Playback:
    """The virtual player. Raises ValueError where there is nothing to play."""
    start_s = _start_s(arrivals, prebuffer_ms * _CLOCK_PER_MS)
    gaps_s: list[float] = []
    dry_s = start_s  # when the player has played all that it was given
    for arrival in arrivals:
        gap_s = arrival.arrived_s - dry_s
        if gap_s > _LEAST_UNDERRUN_S:
            gaps_s.append(gap_s)
            dry_s = arrival.arrived_s
        dry_s += arrival.duration_48k / _CLOCK_HZ
    return Playback(prebuffer_ms, start_s, Underruns(len(gaps_s), max(gaps_s, default=0.0), math.fsum(gaps_s)))


def _start_s(arrivals: Sequence[Arrival], prebuffer_48k: int) -> float:
    if not arrivals:
        raise ValueError("nothing to play")
    buffered_48k = 0
    for arrival in arrivals:
        buffered_48k += arrival.duration_48k
        if buffered_48k >= prebuffer_48k:
            return arrival.arrived_s
    return arrivals[-1].arrived_s
