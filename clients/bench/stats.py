"""Means and percentiles: the arithmetic that every report shares."""

import math
from collections.abc import Sequence
from typing import Any, Final

# Fewer samples do not say what the slowest hundredth does.
MIN_SAMPLES_OF_P99: Final = 100


def percentile(values: Sequence[float], fraction: float) -> float:
    """Nearest-rank percentile: the least value that `fraction` of them do not exceed. Raises ValueError for none."""
    if not values:
        raise ValueError("no values")
    # Rounded first: 0.07 * 100 is a little more than 7.
    rank = math.ceil(round(fraction * len(values), 9))
    return sorted(values)[max(rank, 1) - 1]


def summary(values: Sequence[float], *, digits: int = 2) -> dict[str, Any] | None:
    """Mean, p50, p90, p95, p99 (None under 100 samples), worst, number of samples; None where there is none.

    Files of runs before 2026-11-22 have neither mean nor p90.
    """
    if not values:
        return None
    has_p99 = len(values) >= MIN_SAMPLES_OF_P99
    return {
        "mean": round(math.fsum(values) / len(values), digits),
        "p50": round(percentile(values, 0.5), digits),
        "p90": round(percentile(values, 0.9), digits),
        "p95": round(percentile(values, 0.95), digits),
        "p99": round(percentile(values, 0.99), digits) if has_p99 else None,
        "max": round(max(values), digits),
        "num": len(values),
    }


def low_summary(values: Sequence[float], *, digits: int = 2) -> dict[str, Any] | None:
    """As `summary` of what is worse the smaller it is: p50, p5, p1 and the least."""
    if not values:
        return None
    has_p1 = len(values) >= MIN_SAMPLES_OF_P99
    return {
        "p50": round(percentile(values, 0.5), digits),
        "p5": round(percentile(values, 0.05), digits),
        "p1": round(percentile(values, 0.01), digits) if has_p1 else None,
        "min": round(min(values), digits),
        "num": len(values),
    }
