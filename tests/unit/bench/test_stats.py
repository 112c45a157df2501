"""Percentiles by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicegate.bench.word_errors import word_errors
from voicegate.clients.bench.stats import low_summary, percentile, summary


@pytest.mark.parametrize(
    ("num", "fraction", "rank"),
    [
        (1, 0.5, 1),
        (2, 0.5, 1),
        (3, 0.5, 2),
        (20, 0.95, 19),
        (100, 0.99, 99),
        (100, 0.07, 7),
        (101, 0.99, 100),
        (5, 0, 1),
    ],
)
def test_percentile_is_the_value_of_nearest_rank(num: int, fraction: float, rank: int) -> None:
    values = [float(value) for value in range(num, 0, -1)]
    assert percentile(values, fraction) == rank


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)
    assert summary([]) is None
    assert low_summary([]) is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0.01, 1))
def test_percentile_covers_the_fraction_and_no_smaller_value_does(values: list[float], fraction: float) -> None:
    found = percentile(values, fraction)
    assert found in values
    assert sum(value <= found for value in values) >= fraction * len(values) - 1e-6
    assert sum(value < found for value in values) < fraction * len(values) + 1e-6


def test_p99_needs_a_hundred_samples() -> None:
    few = summary([1.0] * 99)
    assert few == {"mean": 1.0, "p50": 1.0, "p90": 1.0, "p95": 1.0, "p99": None, "max": 1.0, "num": 99}
    values = [float(value) for value in range(1, 101)]
    many = {"mean": 50.5, "p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "max": 100.0, "num": 100}
    assert summary(values) == many
    assert low_summary(values) == {"p50": 50.0, "p5": 5.0, "p1": 1.0, "min": 1.0, "num": 100}


def test_summary_rounds() -> None:
    made = summary([1.23456, 2.0], digits=3)
    assert made == {"mean": 1.617, "p50": 1.235, "p90": 2.0, "p95": 2.0, "p99": None, "max": 2.0, "num": 2}


@pytest.mark.parametrize(
    ("reference", "heard", "errors"),
    [
        ("a b c", "a b c", 0),
        ("a b c", "a x c", 1),
        ("a b c", "a c", 1),
        ("a b", "a x b", 1),
        ("a b", "", 2),
        ("", "a", 1),
    ],
)
def test_word_errors_are_edit_distance(reference: str, heard: str, errors: int) -> None:
    assert word_errors(reference.split(), heard.split()) == errors
