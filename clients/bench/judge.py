"""Figures from what listeners saw. Pure. The definitions: docs/operations.md, "Measuring".

A cut-off turn counts with what had been waited by then; slow readers are told of apart, because their own reading is
what they wait for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from voicegate.clients.bench.plan import Outcome, Record
from voicegate.clients.bench.stats import summary
from voicegate.clients.python.timeline import Arrival, play

# What an ordinary player collects before it begins.
PREBUFFER_MS: Final = 80
CONTINUITY_LIMITS_MS: Final = (50, 100)
_NUM_MESSAGES: Final = 5
# A message so soon after the one before it is of the same chunk: our gateway sends the engine's first as two.
# Lower -> a chunk that a busy machine receives in parts passes for two; higher -> two of a fast server for one.
_SAME_CHUNK_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class Heard:
    """One turn; None: it never came to that."""

    first_audio_ms: float  # first text sent -> first packet; where none came, what was waited
    audible_ms: float | None  # first text sent -> a player without prebuffer plays what is heard; None: not measured
    audio_s: float
    worst_gap_ms: float | None  # a player without prebuffer; None: all came in one message
    worst_buffered_gap_ms: float | None  # a player with PREBUFFER_MS
    gaps_ms: float  # that one's, together
    # None where it was not heard to the end:
    total_ms: float | None  # first text sent -> its end told
    rtf: float | None  # first text sent -> last packet, by the audio
    second_chunk_ms: float | None  # first audio message -> the first of the next chunk, or its end
    stop_ms: float | None = None  # interrupted -> the server tells that it has stopped; None: it never told


def judge(record: Record) -> Heard | None:
    """None for a turn that says nothing of speed: refused, failed, or done without sound."""
    if record.outcome in (Outcome.REFUSED, Outcome.FAILED):
        return None
    arrivals = heard(record.arrivals)
    end_s = record.cancelled_s if record.cancelled_s is not None else record.ended_s
    if not arrivals:
        if record.outcome is not Outcome.CUT_OFF:
            return None
        return Heard((end_s - record.sent_s) * 1000, None, 0.0, None, None, 0.0, None, None, None)
    audio_s = sum(arrival.duration_48k for arrival in arrivals) / 48_000
    bare, buffered = play(arrivals, 0), play(arrivals, PREBUFFER_MS)
    is_whole = record.outcome is Outcome.DONE
    is_judged = len(arrivals) > 1 or not is_whole
    waits_s = [
        0.0 if is_whole else max(end_s - playback.start_s - audio_s - playback.underruns.total_s, 0.0)
        for playback in (bare, buffered)
    ]
    return Heard(
        first_audio_ms=(arrivals[0].arrived_s - record.sent_s) * 1000,
        audible_ms=_audible_ms(record, arrivals),
        audio_s=audio_s,
        worst_gap_ms=max(bare.underruns.worst_s, waits_s[0]) * 1000 if is_judged else None,
        worst_buffered_gap_ms=max(buffered.underruns.worst_s, waits_s[1]) * 1000 if is_judged else None,
        gaps_ms=(buffered.underruns.total_s + waits_s[1]) * 1000,
        total_ms=(end_s - record.sent_s) * 1000 if is_whole else None,
        rtf=(arrivals[-1].arrived_s - record.sent_s) / audio_s if is_whole else None,
        second_chunk_ms=(_second_s(record) - arrivals[0].arrived_s) * 1000 if is_whole else None,
        stop_ms=None if record.stopped_s is None else (record.stopped_s - end_s) * 1000,
    )


def figures(records: Sequence[Record], *, window_s: tuple[float, float]) -> dict[str, Any]:
    """Of the turns that began in `window_s` (on the records' clock)."""
    begun = [record for record in records if window_s[0] <= record.due_s <= window_s[1]]
    prompt = [record for record in begun if not record.is_slow]
    judged = [(record, each) for record in prompt if (each := judge(record)) is not None]
    gaps_ms = [each.worst_gap_ms for _, each in judged if each.worst_gap_ms is not None]
    buffered_ms = [each.worst_buffered_gap_ms for _, each in judged if each.worst_buffered_gap_ms is not None]
    return {
        "first_audio_ms": summary([each.first_audio_ms for _, each in judged]),
        "first_audio_ms_by_writer": _by_writer(judged),
        "audible_ms": summary([each.audible_ms for _, each in judged if each.audible_ms is not None]),
        **{f"c{limit_ms}": _share_within(gaps_ms, limit_ms) for limit_ms in CONTINUITY_LIMITS_MS},
        "num_judged_for_continuity": len(gaps_ms),
        "gap_ms": {
            "longest": round(max(buffered_ms, default=0.0), 1),
            "total": round(sum(each.gaps_ms for _, each in judged), 1),
            "num_listeners": sum(each_ms > 0 for each_ms in buffered_ms),
        },
        "longest_gap_without_prebuffer_ms": round(max(gaps_ms, default=0.0), 1),
        "rtf": summary([each.rtf for _, each in judged if each.rtf is not None], digits=3),
        "second_chunk_ms": summary([each.second_chunk_ms for _, each in judged if each.second_chunk_ms is not None]),
        "total_ms": summary([each.total_ms for _, each in judged if each.total_ms is not None]),
        "stop_ms": summary([each.stop_ms for _, each in judged if each.stop_ms is not None]),
        "wall_per_audio": _wall_per_audio(records),
        "audio_s": round(sum(each.audio_s for _, each in judged), 1),
        "audio_s_per_s": round(_arrived_within(records, window_s) / (window_s[1] - window_s[0]), 1),
        "live": round(_mean_live(records, window_s), 1),
        "outcomes": {each.value: sum(r.outcome is each for r in begun) for each in Outcome},
        "slow_readers": {each.value: sum(r.outcome is each for r in begun if r.is_slow) for each in Outcome},
        "messages": sorted({r.message for r in begun if r.message})[:_NUM_MESSAGES],
        "send_lag_ms": summary([record.lag_s * 1000 for record in begun]),
    }


def seconds_per_letter(records: Sequence[Record]) -> float | None:
    """Of speech; None where nothing was heard to its end."""
    done = [record for record in records if record.outcome is Outcome.DONE and record.arrivals]
    num_letters = sum(record.num_letters for record in done)
    return sum(num_48k for r in done for _, num_48k in r.arrivals) / 48_000 / num_letters if num_letters else None


def heard(pieces: Sequence[tuple[float, int]]) -> list[Arrival]:
    """A record's arrivals, as the virtual player takes them."""
    pts_48k, result = 0, []
    for arrived_s, num_48k in pieces:
        result.append(Arrival(arrived_s, pts_48k, num_48k))
        pts_48k += num_48k
    return result


def _audible_ms(record: Record, arrivals: Sequence[Arrival]) -> float | None:
    if record.audible_48k is None:
        return None
    until_then = play([arrival for arrival in arrivals if arrival.pts_48k <= record.audible_48k], 0)
    played_s = until_then.start_s + until_then.underruns.total_s + record.audible_48k / 48_000
    return (played_s - record.sent_s) * 1000


def _second_s(record: Record) -> float:
    """When the second chunk begins; where all was one, its end, as upstream counts."""
    for (before_s, _), (at_s, _) in pairwise(record.arrivals):
        if at_s - before_s > _SAME_CHUNK_S:
            return at_s
    return record.ended_s


def _wall_per_audio(records: Sequence[Record]) -> float | None:
    """What upstream's client prints as RTF of a run: from the first text to the last end, by all audio."""
    audio_s = sum(num_48k for record in records for _, num_48k in record.arrivals) / 48_000
    if not audio_s:
        return None
    wall_s = max(record.ended_s for record in records) - min(record.sent_s for record in records)
    return round(wall_s / audio_s, 4)


def _by_writer(judged: Sequence[tuple[Record, Heard]]) -> dict[str, Any]:
    paces = sorted({record.words_per_s or 0.0 for record, _ in judged})
    return {
        f"{pace:g}" if pace else "whole": summary(
            [each.first_audio_ms for record, each in judged if (record.words_per_s or 0.0) == pace]
        )
        for pace in paces
    }


def _share_within(gaps_ms: Sequence[float], limit_ms: float) -> float | None:
    return round(sum(gap_ms <= limit_ms for gap_ms in gaps_ms) / len(gaps_ms), 4) if gaps_ms else None


def _arrived_within(records: Sequence[Record], window_s: tuple[float, float]) -> float:
    inside = [num_48k for r in records for at_s, num_48k in r.arrivals if window_s[0] <= at_s <= window_s[1]]
    return sum(inside) / 48_000


def _mean_live(records: Sequence[Record], window_s: tuple[float, float]) -> float:
    """Turns that were being written, made or played, on average."""
    live_s = 0.0
    for record in records:
        end_s = record.ended_s if record.cancelled_s is None else record.cancelled_s
        if record.arrivals and record.cancelled_s is None:
            playback = play(heard(record.arrivals), PREBUFFER_MS)
            audio_s = sum(num_48k for _, num_48k in record.arrivals) / 48_000
            end_s = max(end_s, playback.start_s + audio_s + playback.underruns.total_s)
        live_s += max(min(end_s, window_s[1]) - max(record.due_s, window_s[0]), 0.0)
    return live_s / (window_s[1] - window_s[0])
