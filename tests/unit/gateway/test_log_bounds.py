"""Which log lines leave: all of a quiet kind, as many as may of a loud one, and the count of the rest."""

import pytest

from voicegate.gateway.log_bounds import REPORT_S, LineBounds


def test_a_flood_leaves_at_its_rate_and_nobody_elses() -> None:
    bounds = LineBounds(lines_per_s=100)
    admitted = [bounds.admits("socket opened", 50.0 + n / 1000) for n in range(60_000)]
    assert admitted[:500] == [True] * 500, "five seconds' worth at once"
    assert sum(admitted) == pytest.approx(500 + 60 * 100, abs=2)
    assert bounds.admits("engine hangs", 110.0)


def test_what_is_left_out_is_counted_and_told_once() -> None:
    bounds = LineBounds(lines_per_s=10)
    assert bounds.next_report_s is None
    assert sum(bounds.admits("a", 100.0) for _ in range(80)) == 50
    assert not bounds.admits("a", 100.05)
    assert bounds.next_report_s == 100.0 + REPORT_S
    assert bounds.take_report(100.0 + REPORT_S - 0.1) == []
    assert bounds.take_report(100.0 + REPORT_S) == [("a", 31)]
    assert bounds.next_report_s is None
    assert bounds.take_report(200.0) == []


def test_what_goes_on_is_told_again() -> None:
    bounds = LineBounds(lines_per_s=10)
    for at_s in range(100, 130):
        for _ in range(100):
            bounds.admits("a", float(at_s))
    assert [count for _, count in bounds.take_report(130.0)] == [30 * 100 - 50 - 29 * 10]


def test_the_allowance_comes_back() -> None:
    bounds = LineBounds(lines_per_s=10)
    for _ in range(60):
        bounds.admits("a", 100.0)
    assert not bounds.admits("a", 100.0)
    assert [bounds.admits("a", 101.0) for _ in range(11)] == [True] * 10 + [False]
