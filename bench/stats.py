"""Percentiles and word error rate: the arithmetic that every report shares."""

from collections.abc import Sequence


def percentile(values: Sequence[float], fraction: float) -> float:
    """Nearest-rank percentile: always one of the values. Raises ValueError for none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[min(int(fraction * len(ordered)), len(ordered) - 1)]


def summary(values: Sequence[float]) -> dict[str, float]:
    """p50, p95, worst and the number of samples."""
    return {
        "p50": round(percentile(values, 0.5), 2),
        "p95": round(percentile(values, 0.95), 2),
        "max": round(max(values), 2),
        "num": len(values),
    }


def word_errors(reference: Sequence[str], heard: Sequence[str]) -> int:
    """Levenshtein distance in words: substitutions, deletions and insertions."""
    previous = list(range(len(heard) + 1))
    for row, wanted in enumerate(reference, 1):
        current = [row]
        for column, word in enumerate(heard, 1):
            substitution = previous[column - 1] + (wanted != word)
            current.append(min(substitution, previous[column] + 1, current[-1] + 1))
        previous = current
    return previous[-1]
