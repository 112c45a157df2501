"""Figures from what listeners saw. Pure. The definitions: docs/operations/measuring.md.

A cut-off turn counts with what had been waited by then; slow readers are told of apart, because their own reading is
what they wait for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from voicegate.clients.bench.plan import Outcome, Record
from voicegate.clients.bench.stats import low_summary, summary
from voicegate.clients.python.timeline import PREBUFFERS_MS, Arrival, chunks, play

# An ordinary player collects so much before it begins.
PREBUFFER_MS: Final = 80
CONTINUITY_LIMITS_MS: Final = (50, 100, 200)
_NUM_MESSAGES: Final = 5
# A client that interrupts hears the short turns to their ends and no others.
_LEAST_DONE_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Heard:
    """One turn; None: it never came to that."""

    first_audio_ms: float  # first text sent -> first packet; where none came, what was waited
    audible_ms: float | None  # first text sent -> a player without prebuffer plays what is heard; None: not measured
    audio_s: float
    # Each gap that players had, by their prebuffer in ms. One that heard a single chunk to its end is not judged.
    gaps_ms: Mapping[int, tuple[float, ...]]
    is_judged: bool
    # None where it was not heard to the end:
    total_ms: float | None  # first text sent -> its end told
    rtf: float | None  # first text sent -> last packet, by the audio
    second_chunk_ms: float | None  # first audio message -> the first of the next chunk, or its end
    headroom_ms: float | None = None  # the first chunk's audio beyond that; below 0: the first gap. None: no second
    # None where the server never told that it has stopped; both from the interruption on:
    stop_ms: float | None = None  # until it told
    last_audio_ms: float | None = None  # until the last audio that came; 0: none did

    def worst_gap_ms(self, prebuffer_ms: int) -> float:
        return max(self.gaps_ms[prebuffer_ms], default=0.0)


def judge(record: Record) -> Heard | None:
    """None for a turn that says nothing of speed: refused, failed, or done without sound."""
    if record.outcome in (Outcome.REFUSED, Outcome.FAILED):
        return None
    arrivals = heard(record.arrivals)
    end_s = record.cancelled_s if record.cancelled_s is not None else record.ended_s
    if not arrivals:
        if record.outcome is not Outcome.CUT_OFF:
            return None
        nothing: dict[int, tuple[float, ...]] = dict.fromkeys(PREBUFFERS_MS, ())
        return Heard((end_s - record.sent_s) * 1000, None, 0.0, nothing, False, None, None, None)
    audio_s = sum(arrival.duration_48k for arrival in arrivals) / 48_000
    is_whole = record.outcome is Outcome.DONE
    made = chunks(arrivals)
    # Where all was one chunk, the end stands for the second, as upstream counts.
    second_s = made[1].arrived_s if len(made) > 1 else record.ended_s
    second_chunk_ms = (second_s - arrivals[0].arrived_s) * 1000
    return Heard(
        first_audio_ms=(arrivals[0].arrived_s - record.sent_s) * 1000,
        audible_ms=_audible_ms(record, arrivals),
        audio_s=audio_s,
        gaps_ms={each_ms: _gaps_ms(arrivals, each_ms, None if is_whole else end_s) for each_ms in PREBUFFERS_MS},
        is_judged=len(made) > 1 or not is_whole,
        total_ms=(end_s - record.sent_s) * 1000 if is_whole else None,
        rtf=(arrivals[-1].arrived_s - record.sent_s) / audio_s if is_whole else None,
        second_chunk_ms=second_chunk_ms if is_whole else None,
        headroom_ms=made[0].duration_48k / 48 - second_chunk_ms if len(made) > 1 else None,
        stop_ms=None if record.stopped_s is None else (record.stopped_s - end_s) * 1000,
        last_audio_ms=None if record.stopped_s is None else _last_audio_ms(record),
    )


def figures(records: Sequence[Record], *, window_s: tuple[float, float]) -> dict[str, Any]:
    """Figures of the turns that began in `window_s` (on the records' clock)."""
    begun = [record for record in records if window_s[0] <= record.due_s <= window_s[1]]
    prompt = [record for record in begun if not record.is_slow]
    judged = [(record, each) for record in prompt if (each := judge(record)) is not None]
    writers = _by_writer(judged)
    players = {each_ms: _continuity([each for _, each in judged], each_ms) for each_ms in PREBUFFERS_MS}
    bare, buffered = players[0], players[PREBUFFER_MS]
    return {
        "first_audio_ms": summary([each.first_audio_ms for _, each in judged]),
        "first_audio_ms_by_writer": {
            writer: summary([each.first_audio_ms for each in theirs]) for writer, theirs in writers.items()
        },
        "continuity_by_writer": {writer: _continuity(theirs, 0) for writer, theirs in writers.items()},
        "audible_ms": summary([each.audible_ms for _, each in judged if each.audible_ms is not None]),
        **{f"c{limit_ms}": bare[f"c{limit_ms}"] for limit_ms in CONTINUITY_LIMITS_MS},
        "num_judged_for_continuity": sum(each.is_judged for _, each in judged),
        "gap_ms": {
            "longest": buffered["longest_ms"],
            "total": round(sum(sum(each.gaps_ms[PREBUFFER_MS]) for _, each in judged), 1),
            "num_listeners": sum(each.is_judged and bool(each.gaps_ms[PREBUFFER_MS]) for _, each in judged),
        },
        "longest_gap_without_prebuffer_ms": bare["longest_ms"],
        "by_prebuffer_ms": {str(each_ms): player for each_ms, player in players.items()},
        "rtf": summary([each.rtf for _, each in judged if each.rtf is not None], digits=3),
        "second_chunk_ms": summary([each.second_chunk_ms for _, each in judged if each.second_chunk_ms is not None]),
        "headroom_ms": low_summary([each.headroom_ms for _, each in judged if each.headroom_ms is not None]),
        "total_ms": summary([each.total_ms for _, each in judged if each.total_ms is not None]),
        "stop_ms": summary([each.stop_ms for _, each in judged if each.stop_ms is not None]),
        "last_audio_ms": summary([each.last_audio_ms for _, each in judged if each.last_audio_ms is not None]),
        "wall_per_audio": _wall_per_audio(records),
        "audio_s": round(sum(each.audio_s for _, each in judged), 1),
        "audio_s_per_s": round(_arrived_within(records, window_s) / (window_s[1] - window_s[0]), 1),
        "live": round(_mean_live(records, window_s), 1),
        "outcomes": {each.value: sum(r.outcome is each for r in begun) for each in Outcome},
        "slow_readers": {each.value: sum(r.outcome is each for r in begun if r.is_slow) for each in Outcome},
        "messages": sorted({r.message for r in begun if r.message})[:_NUM_MESSAGES],
        "send_lag_ms": summary([record.lag_s * 1000 for record in prompt]),
    }


def seconds_per_letter(records: Sequence[Record]) -> float | None:
    """Seconds of speech a letter; None where nothing was heard to its end, or so little that it is the shortest."""
    audible = [record for record in records if record.arrivals]
    done = [record for record in audible if record.outcome is Outcome.DONE]
    if len(done) < _LEAST_DONE_SHARE * len(audible):
        return None
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


def _gaps_ms(arrivals: Sequence[Arrival], prebuffer_ms: int, end_s: float | None) -> tuple[float, ...]:
    """`end_s`: of a turn that was not heard to its end; what was waited by then is a gap, too."""
    playback = play(arrivals, prebuffer_ms)
    gaps_s = playback.underruns.gaps_s
    if end_s is not None:
        audio_s = sum(arrival.duration_48k for arrival in arrivals) / 48_000
        wait_s = end_s - playback.start_s - audio_s - playback.underruns.total_s
        gaps_s = (*gaps_s, wait_s) if wait_s > 0 else gaps_s
    return tuple(gap_s * 1000 for gap_s in gaps_s)


def _last_audio_ms(record: Record) -> float:
    if record.last_audio_s is None or record.cancelled_s is None:
        return 0.0
    return (record.last_audio_s - record.cancelled_s) * 1000


def _wall_per_audio(records: Sequence[Record]) -> float | None:
    """Upstream's client prints this as RTF of a run: from the first text to the last end, by all audio."""
    audio_s = sum(num_48k for record in records for _, num_48k in record.arrivals) / 48_000
    if not audio_s:
        return None
    wall_s = max(record.ended_s for record in records) - min(record.sent_s for record in records)
    return round(wall_s / audio_s, 4)


def _by_writer(judged: Sequence[tuple[Record, Heard]]) -> dict[str, list[Heard]]:
    """By the words that they write a second; "whole" comes first, whose text was given at once."""
    paces = sorted({record.words_per_s or 0.0 for record, _ in judged})
    return {
        f"{pace:g}" if pace else "whole": [each for record, each in judged if (record.words_per_s or 0.0) == pace]
        for pace in paces
    }


def _continuity(judged: Sequence[Heard], prebuffer_ms: int) -> dict[str, float | int | None]:
    """Continuity of players with that prebuffer: shares without a longer gap, and how many longer ones there were."""
    told = [each for each in judged if each.is_judged]
    worst_ms = [each.worst_gap_ms(prebuffer_ms) for each in told]
    figures: dict[str, float | int | None] = {"longest_ms": round(max(worst_ms, default=0.0), 1)}
    for limit_ms in CONTINUITY_LIMITS_MS:
        num_within = sum(each_ms <= limit_ms for each_ms in worst_ms)
        figures[f"c{limit_ms}"] = round(num_within / len(told), 4) if told else None
        figures[f"num_gaps_over_{limit_ms}_ms"] = sum(
            gap_ms > limit_ms for each in told for gap_ms in each.gaps_ms[prebuffer_ms]
        )
    return figures


def _arrived_within(records: Sequence[Record], window_s: tuple[float, float]) -> float:
    inside = [num_48k for r in records for at_s, num_48k in r.arrivals if window_s[0] <= at_s <= window_s[1]]
    return sum(inside) / 48_000


def _mean_live(records: Sequence[Record], window_s: tuple[float, float]) -> float:
    """Turns that were being written, made or played, on average; a listener's next ends the one before."""
    live_s = 0.0
    due_s = {(record.visit, record.turn): record.due_s for record in records}
    for record in records:
        end_s = record.ended_s if record.cancelled_s is None else record.cancelled_s
        if record.arrivals and record.cancelled_s is None:
            playback = play(heard(record.arrivals), PREBUFFER_MS)
            audio_s = sum(num_48k for _, num_48k in record.arrivals) / 48_000
            end_s = max(end_s, playback.start_s + audio_s + playback.underruns.total_s)
        next_s = due_s.get((record.visit, record.turn + 1), end_s)
        live_s += max(min(end_s, next_s, window_s[1]) - max(record.due_s, window_s[0]), 0.0)
    return live_s / (window_s[1] - window_s[0])
