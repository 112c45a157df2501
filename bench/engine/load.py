"""Load and listening, without a clock or an engine: when utterances begin, when text comes, what a listener gets.

Times are seconds of one monotonic clock unless the name says otherwise. The virtual player is that of
clients/python/timeline; C50 and C100 are those of SGLang-Omni and vLLM-Omni: a player that begins with the first
packet never waits longer than 50 (100) ms.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

from voicegate.clients.python.timeline import Arrival, play

# An ordinary player collects so much before it begins.
PREBUFFER_MS: Final = 80

# Events closer together than this are one chunk of the engine's: packets are encoded in slices, each with an event.
# Higher -> two blocks may count as one; lower -> slices of a loaded encoder count as blocks.
_CHUNK_GAP_S: Final = 0.020


class StartPattern(Enum):
    STAGGERED = "staggered"  # spread over one utterance's length; whoever has heard all is followed by the next
    BURST = "burst"  # all at once; then as above
    POISSON = "poisson"  # open loop: starts do not wait for anybody's end


def staggered_starts_s(num_streams: int, over_s: float) -> list[float]:
    """Evenly spread over [0, over_s)."""
    return [index * over_s / num_streams for index in range(num_streams)]


def poisson_starts_s(rate_per_s: float, rng: random.Random) -> Iterator[float]:
    """Without end, from 0 on; the first is not at 0."""
    start_s = 0.0
    while True:
        start_s += rng.expovariate(rate_per_s)
        yield start_s


def text_times_s(num_pieces: int, tokens_per_s: float) -> list[float]:
    """When each piece of a text comes, after the first, from a writer with a steady pace."""
    return [index / tokens_per_s for index in range(num_pieces)]


@dataclass(frozen=True, slots=True)
class Heard:
    """Speech as one listener got it; durations, so free of any clock. None: it never came to that.

    Of a listener who was cut off while waiting, the times are what had been waited by then: lower bounds.
    """

    first_audio_ms: float  # utterance due -> first packet
    buffered_audio_ms: float  # utterance due -> PREBUFFER_MS are there (or all, of a shorter utterance)
    audio_ms: float
    rtf: float | None  # due -> last packet, per audio; None where cut off
    second_chunk_headroom_ms: float | None  # audio in hand of a player without prebuffer when the second chunk came
    worst_underrun_ms: float | None  # a player that begins with the first packet; None: all came in one event
    worst_buffered_underrun_ms: float | None  # a player that begins with PREBUFFER_MS; None: as above
    is_cut_off: bool = False


def listen(due_s: float, arrivals: Sequence[Arrival], *, cut_off_s: float | None = None) -> Heard:
    """Judge an utterance by when its audio came. Raises ValueError where none came and nobody cut it off."""
    if not arrivals:
        if cut_off_s is None:
            raise ValueError("no audio arrived")
        waited_ms = (cut_off_s - due_s) * 1000
        return Heard(waited_ms, waited_ms, 0.0, None, None, None, None, is_cut_off=True)
    audio_s = _audio_s(arrivals)
    is_judged = len(arrivals) > 1 or cut_off_s is not None
    buffered_s = play(arrivals, PREBUFFER_MS).start_s
    if cut_off_s is not None and audio_s * 1000 < PREBUFFER_MS:
        buffered_s = cut_off_s
    return Heard(
        first_audio_ms=(arrivals[0].arrived_s - due_s) * 1000,
        buffered_audio_ms=(buffered_s - due_s) * 1000,
        audio_ms=audio_s * 1000,
        rtf=None if cut_off_s is not None else (arrivals[-1].arrived_s - due_s) / audio_s,
        second_chunk_headroom_ms=_second_chunk_headroom_ms(arrivals),
        worst_underrun_ms=_worst_underrun_ms(arrivals, 0, cut_off_s) if is_judged else None,
        worst_buffered_underrun_ms=_worst_underrun_ms(arrivals, PREBUFFER_MS, cut_off_s) if is_judged else None,
        is_cut_off=cut_off_s is not None,
    )


def played_out_s(arrivals: Sequence[Arrival], prebuffer_ms: int = PREBUFFER_MS) -> float:
    """When a player has played all of it. Raises ValueError where there is nothing to play."""
    playback = play(arrivals, prebuffer_ms)
    return playback.start_s + _audio_s(arrivals) + playback.underruns.total_s


def continuity(worst_underruns_ms: Sequence[float | None], limit_ms: float) -> float | None:
    """Share of listeners who never waited longer than `limit_ms`; None where nobody can be judged."""
    judged = [worst_ms for worst_ms in worst_underruns_ms if worst_ms is not None]
    return sum(worst_ms <= limit_ms for worst_ms in judged) / len(judged) if judged else None


def _audio_s(arrivals: Sequence[Arrival]) -> float:
    return sum(arrival.duration_48k for arrival in arrivals) / 48_000


def _worst_underrun_ms(arrivals: Sequence[Arrival], prebuffer_ms: int, cut_off_s: float | None) -> float:
    worst_s = play(arrivals, prebuffer_ms).underruns.worst_s
    if cut_off_s is not None:
        worst_s = max(worst_s, cut_off_s - played_out_s(arrivals, prebuffer_ms))
    return worst_s * 1000


def _second_chunk_headroom_ms(arrivals: Sequence[Arrival]) -> float | None:
    in_hand_s = 0.0
    for arrival, following in pairwise(arrivals):
        in_hand_s += arrival.duration_48k / 48_000
        if following.arrived_s - arrival.arrived_s >= _CHUNK_GAP_S:
            return (arrivals[0].arrived_s + in_hand_s - following.arrived_s) * 1000
    return None
