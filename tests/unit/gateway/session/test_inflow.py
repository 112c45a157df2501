"""Messages of one socket: bursts pass, floods wait, and one that goes on is found out."""

import pytest

from voicegate.gateway.session.inflow import Inflow

RATE = 100.0


def new_inflow() -> Inflow:
    return Inflow(RATE, patience_s=10.0)


def send_steadily(inflow: Inflow, *, per_s: float, start_s: float, seconds: float) -> float:
    """One message at a time, read no sooner than allowed. Returns when the last was read."""
    now_s = due_s = start_s
    while due_s < start_s + seconds:
        now_s = max(now_s, due_s)
        now_s += inflow.take(1, 20, now_s)
        due_s += 1 / per_s
    return now_s


def test_a_rate_that_is_allowed_is_never_slowed() -> None:
    inflow = new_inflow()
    assert send_steadily(inflow, per_s=RATE, start_s=50.0, seconds=60.0) < 110.0
    assert inflow.num_excesses == 0


def test_two_seconds_worth_may_come_at_once() -> None:
    inflow = new_inflow()
    assert [inflow.take(1, 20, 50.0) for _ in range(200)] == [0.0] * 200
    assert inflow.take(1, 20, 50.0) == pytest.approx(0.01)
    assert inflow.take(1, 20, 50.0) == pytest.approx(0.02)
    assert inflow.num_excesses == 1


def test_a_flood_is_read_at_the_rate_and_no_faster() -> None:
    inflow = new_inflow()
    read_s = send_steadily(inflow, per_s=1e6, start_s=50.0, seconds=0.001)
    assert read_s - 50.0 == pytest.approx(1000 / RATE - 2.0, abs=0.02)


def test_large_messages_count_for_what_they_weigh() -> None:
    inflow = new_inflow()
    assert inflow.take(1, 100 * 1024, 50.0) == 0.0
    assert inflow.take(1, 101 * 1024, 50.0) == pytest.approx(0.01)


def test_who_goes_on_for_too_long_floods() -> None:
    inflow = new_inflow()
    now_s = 50.0
    while not inflow.is_flood(now_s):
        now_s += inflow.take(10, 200, now_s)
    assert now_s == pytest.approx(50.0 + 10.0, abs=0.2)


def test_a_burst_that_ends_is_forgiven() -> None:
    inflow = new_inflow()
    now_s = send_steadily(inflow, per_s=1e6, start_s=50.0, seconds=0.0005)
    assert not inflow.is_flood(now_s)
    inflow.take(1, 20, now_s + 1.5)
    assert not inflow.is_flood(now_s + 100.0)
    assert inflow.num_excesses == 1
    assert inflow.take(300, 20, now_s + 100.0) > 0
    assert inflow.num_excesses == 2
