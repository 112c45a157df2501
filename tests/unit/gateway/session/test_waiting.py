"""The queue for room: in order, for no longer than the limit, and with an honest word for those turned away."""

import pytest

from voicegate.engine.interface import UtteranceId
from voicegate.gateway.session.waiting import WaitingLimits, WaitingLine

A, B, C = (UtteranceId(name) for name in "abc")


def test_first_come_first_served() -> None:
    line = WaitingLine(WaitingLimits(num_waiting=2, wait_s=1.0))
    assert list(line) == []
    assert line.next_deadline_s is None
    line.join(A, 10.0)
    assert not line.is_full
    line.join(B, 10.5)
    assert line.is_full
    assert (next(iter(line)), line.next_deadline_s, len(line)) == (A, 11.0, 2)
    line.leave(A)
    assert (next(iter(line)), line.next_deadline_s, len(line)) == (B, 11.5, 1)
    line.leave(A)  # nothing happens twice
    line.leave(B)
    assert list(line) == []


def test_nobody_waits_for_longer() -> None:
    line = WaitingLine(WaitingLimits(num_waiting=3, wait_s=1.0))
    for joined_s, who in ((10.0, A), (10.5, B), (10.5, C)):
        line.join(who, joined_s)
    assert line.take_expired(10.99) == []
    assert line.take_expired(11.0) == [A]
    assert line.take_expired(11.5) == [B, C]
    assert len(line) == 0


@pytest.mark.parametrize("limits", [WaitingLimits(num_waiting=0), WaitingLimits(wait_s=0.0)])
def test_where_nobody_may_wait_the_line_is_full(limits: WaitingLimits) -> None:
    assert WaitingLine(limits).is_full


def test_room_is_promised_at_the_rate_at_which_others_end() -> None:
    line = WaitingLine(WaitingLimits())
    assert line.retry_after_ms(0.0) == 500
    for n in range(100):
        line.note_end(10.0 + n * 0.8)
    assert line.retry_after_ms(0.0) == 800
    line.join(A, 100.0)
    line.join(B, 100.0)
    assert line.retry_after_ms(0.0) == 2400
    assert line.retry_after_ms(0.0, least_ms=3000) == 3000
    for n in range(100):
        line.note_end(200.0 + n * 60.0)
    assert line.retry_after_ms(0.0) == 10_000


def test_where_nothing_moves_nothing_is_promised() -> None:
    line = WaitingLine(WaitingLimits(wait_s=1.0))
    line.note_admission(0.0)
    assert line.retry_after_ms(3600.0) == 500, "nobody was turned away"
    assert not line.is_in_vain(3600.0)
    line.note_admission(3600.0)
    line.note_refusal(3600.5)
    assert not line.is_in_vain(3600.9), "it may be a matter of a moment"
    line.note_refusal(3604.0)
    assert line.is_in_vain(3604.0)
    assert line.retry_after_ms(3604.0) == 4000
    assert line.retry_after_ms(9000.0) == 10_000
    line.note_end(9000.0)
    assert not line.is_in_vain(9000.0)


def test_who_turns_away_everybody_from_the_start_says_so() -> None:
    line = WaitingLine(WaitingLimits(wait_s=1.0))
    line.note_refusal(5.0)
    assert not line.is_in_vain(5.5)
    assert line.is_in_vain(6.5)


def test_a_quiet_night_is_one_interval_of_many() -> None:
    line = WaitingLine(WaitingLimits())
    line.note_end(0.0)
    now_s = 8 * 3600.0
    for _ in range(12):
        line.note_end(now_s)
        now_s += 0.1
    assert line.retry_after_ms(0.0) < 1500
