"""Delays double, are spread, have a limit, and respect what the server asked for."""

import pytest

from voicegate.clients.python.backoff import Backoff


@pytest.mark.parametrize(("retry", "chance", "delay_s"), [(0, 0.0, 0.05), (0, 1.0, 0.1), (3, 1.0, 0.8), (9, 1.0, 2.0)])
def test_delays(retry: int, chance: float, delay_s: float) -> None:
    assert Backoff(first_s=0.1, max_s=2.0).delay_s(retry, chance) == pytest.approx(delay_s)


def test_never_sooner_than_the_server_asked_for() -> None:
    assert Backoff(first_s=0.1).delay_s(0, 0.0, retry_after_ms=3000) == pytest.approx(3.05)


def test_a_server_that_asks_for_too_long_a_wait_is_given_up() -> None:
    backoff = Backoff(num_retries=2, max_retry_after_s=60)
    assert [backoff.gives_up(retry, None) for retry in range(3)] == [False, False, True]
    assert not backoff.gives_up(0, 60_000)
    assert backoff.gives_up(0, 86_400_000)


def test_however_often_it_is_tried_there_is_a_delay() -> None:
    assert Backoff(first_s=0.001, max_s=0.004).delay_s(100_000, chance=0.0) == 0.002
