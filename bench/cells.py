"""Cells that the tables of results share. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from voicegate.clients.bench.table import MAX_SEND_LAG_MS

MISSING: Final = "–"


def middle(times: dict[str, float | None] | None) -> str:
    return "–" if not times else f"{times['p50']:.0f} / {times['p95']:.0f} ms"


def commit(run: Mapping[str, Any]) -> str:
    """Where files differed from it, that is said."""
    changed = ", with changes" if run["environment"].get("is_dirty") else ""
    return f"commit {run['environment']['commit']}{changed}"


def shares(row: dict[str, Any]) -> str:
    return " / ".join("-" if row[key] is None else f"{100 * row[key]:.1f} %" for key in ("c50", "c100"))


def lateness(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Sentences of loads, by name, at which the clients were late: what they waited for is not the server's."""
    late = [name for name, row in rows.items() if row.get("clients", {}).get("are_late")]
    behind = [
        f"{name} ({lag_ms:.0f} ms)"
        for name, row in rows.items()
        if (lag_ms := (row.get("send_lag_ms") or {"p95": 0.0})["p95"]) > MAX_SEND_LAG_MS
    ]
    return [
        *([f"The clients themselves were late in {', '.join(late)}."] if late else []),
        *([f"Texts were sent late, and first audio counts from then; p95: {', '.join(behind)}."] if behind else []),
    ]


def half(times: dict[str, float] | None) -> str:
    return "–" if times is None else f"{times['p50']:.2f}"


def span(values: Sequence[float], *, digits: int = 0) -> str:
    """The least and the greatest."""
    if not values:
        return MISSING
    least, most = (f"{each:.{digits}f}" for each in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"
