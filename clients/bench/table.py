"""Rows for a terminal: a heading, a line a scenario, under it what else was measured, and what went wrong. Pure."""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from voicegate.clients.bench.plan import Outcome

LOST: Final = (Outcome.REFUSED, Outcome.FAILED, Outcome.CUT_OFF)
# First audio counts from when the text was sent. Later than this behind its time, that hides what somebody waited.
MAX_SEND_LAG_MS: Final = 10.0
_COLUMNS: Final = (
    ("scenario", 18),
    ("first audio ms", 28),
    ("turns", 6),
    ("live", 6),
    ("C50", 7),
    ("C100", 7),
    ("longest gap", 12),
    ("audio-s/s", 10),
    ("lost", 5),
)


def heading() -> str:
    """Two lines."""
    names = "".join(name.ljust(width) if index == 0 else name.rjust(width) for index, (name, width) in _columns())
    units = "".ljust(_COLUMNS[0][1]) + "mean  p50/p90/p95/p99".rjust(_COLUMNS[1][1])
    return f"{names}\n{units}"


def lines(scenario: str, row: Mapping[str, Any]) -> list[str]:
    cells = (scenario, *_cells(row))
    shown = "".join(
        cell.ljust(width) if index == 0 else cell.rjust(width)
        for (index, (_, width)), cell in zip(_columns(), cells, strict=True)
    )
    others = textwrap.wrap("; ".join(_others(row)), len(shown), initial_indent="    ", subsequent_indent="    ")
    return [shown, *others, *(f"  ! {remark}" for remark in _remarks(row))]


def _columns() -> list[tuple[int, tuple[str, int]]]:
    return list(enumerate(_COLUMNS))


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    first = row["first_audio_ms"]
    latency = "-" if first is None else f"{_number(first.get('mean'))}  {_percentiles(first)}"
    return (
        latency,
        str(first["num"] if first else 0),
        f"{row['live']:.0f}",
        _share(row["c50"]),
        _share(row["c100"]),
        f"{row['gap_ms']['longest']:.0f} ms",
        f"{row['audio_s_per_s']:.1f}",
        str(sum(row["outcomes"][each.value] for each in LOST)),
    )


def _others(row: Mapping[str, Any]) -> Iterator[str]:
    """Other measurements; files of earlier runs lack some."""
    if (audible := row.get("audible_ms")) is not None:
        yield f"audible {_percentiles(audible)} ms"
    if (rtf := row["rtf"]) is not None:
        yield f"rtf p50 {rtf['p50']:.2f}" + ("" if rtf["p99"] is None else f", p99 {rtf['p99']:.2f}")
    if row["second_chunk_ms"] is not None:
        headroom = row.get("headroom_ms")
        early = "" if headroom is None else f", {headroom['min']:.0f} ms ahead of the player at least"
        yield f"second chunk after {_number(row['second_chunk_ms']['p50'])} ms{early}"
    if (stop := row.get("stop_ms")) is not None:
        last = row.get("last_audio_ms")
        silent = "" if last is None else f", last audio after {_number(last['max'])} ms at most"
        yield f"interrupted: stopped after {_number(stop['p50'])} ms{silent}"
    if (connect := row.get("connect_ms")) is not None:
        yield f"connected in {_number(connect['p50'])} ms"
    yield from _by_writer(row)


def _by_writer(row: Mapping[str, Any]) -> Iterator[str]:
    """Rows by writer of a mixed load: a writer that pauses has gaps alone, too, that whole text beside it has not."""
    continuity = row.get("continuity_by_writer", {})
    if len(continuity) > 1:
        for writer, gaps in continuity.items():
            first = row["first_audio_ms_by_writer"][writer]
            name = writer if writer == "whole" else f"{writer} words/s"
            yield f"{name}: {_number(first['p50'])}/{_number(first['p95'])} ms, C100 {_share(gaps['c100'])}"


def _remarks(row: Mapping[str, Any]) -> list[str]:
    lost = [f"{row['outcomes'][each.value]} {each.value.replace('_', ' ')}" for each in LOST]
    remarks = [", ".join(each for each in lost if not each.startswith("0 "))]
    remarks += row["messages"][:2]
    left = row.get("left_behind")
    if left is not None and left["utterances"]:
        remarks.append(f"{left['utterances']} utterances still ran {left['after_ms']} ms after everybody had left")
    if row["clients"]["are_late"]:
        lag_ms = row["clients"]["loop_lag_p99_ms"]
        remarks.append(
            f"the clients themselves were up to {lag_ms:.0f} ms late: this machine is too busy to measure on"
        )
    if row.get("may_be_paced"):
        remarks.append("this protocol cannot ask for haste: audio-s/s and rtf tell the pace at which the server sends")
    lag = row.get("send_lag_ms")
    if lag is not None and lag["p95"] > MAX_SEND_LAG_MS:
        num_late = row["clients"].get("num_late_connections", 0)
        cause = f"; connections that had to be opened first: {num_late}" if num_late else ""
        remarks.append(f"texts were sent {lag['p95']:.0f} ms late at p95, and first audio counts from then{cause}")
    return [remark for remark in remarks if remark]


def _percentiles(figures: Mapping[str, Any]) -> str:
    return "/".join(_number(figures.get(each)) for each in ("p50", "p90", "p95", "p99"))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
