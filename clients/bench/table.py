"""Rows for a terminal: a heading, a line a scenario, and under it what went wrong. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from voicegate.clients.bench.plan import Outcome

LOST: Final = (Outcome.REFUSED, Outcome.FAILED, Outcome.CUT_OFF)
_COLUMNS: Final = (
    ("scenario", 18),
    ("first audio ms", 20),
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
    units = "".ljust(_COLUMNS[0][1]) + "p50 / p95 / p99".rjust(_COLUMNS[1][1])
    return f"{names}\n{units}"


def lines(scenario: str, row: Mapping[str, Any]) -> list[str]:
    cells = (scenario, *_cells(row))
    shown = "".join(
        cell.ljust(width) if index == 0 else cell.rjust(width)
        for (index, (_, width)), cell in zip(_columns(), cells, strict=True)
    )
    return [shown, *(f"  ! {remark}" for remark in _remarks(row))]


def _columns() -> list[tuple[int, tuple[str, int]]]:
    return list(enumerate(_COLUMNS))


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    first = row["first_audio_ms"]
    latency = "-" if first is None else " / ".join(_number(first[each]) for each in ("p50", "p95", "p99"))
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


def _remarks(row: Mapping[str, Any]) -> list[str]:
    lost = [f"{row['outcomes'][each.value]} {each.value.replace('_', ' ')}" for each in LOST]
    remarks = [", ".join(each for each in lost if not each.startswith("0 "))]
    remarks += row["messages"][:2]
    if row["clients"]["are_late"]:
        lag_ms = row["clients"]["loop_lag_p99_ms"]
        remarks.append(
            f"the clients themselves were up to {lag_ms:.0f} ms late: this machine is too busy to measure on"
        )
    return [remark for remark in remarks if remark]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
