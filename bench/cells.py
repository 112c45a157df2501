"""Cells that the tables of results share. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

MISSING: Final = "–"


def middle(times: dict[str, float | None] | None) -> str:
    return "–" if not times else f"{times['p50']:.0f} / {times['p95']:.0f} ms"


def commit(run: Mapping[str, Any]) -> str:
    """Where files differed from it, that is said."""
    changed = ", with changes" if run["environment"].get("is_dirty") else ""
    return f"commit {run['environment']['commit']}{changed}"


def shares(row: dict[str, Any]) -> str:
    return " / ".join("-" if row[key] is None else f"{100 * row[key]:.1f} %" for key in ("c50", "c100"))


def half(times: dict[str, float] | None) -> str:
    return "–" if times is None else f"{times['p50']:.2f}"


def span(values: Sequence[float], *, digits: int = 0) -> str:
    """The least and the greatest."""
    if not values:
        return MISSING
    least, most = (f"{each:.{digits}f}" for each in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"
