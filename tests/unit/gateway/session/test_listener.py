"""Audio in a listener's hand, and the gaps that players report, honestly or not."""

import pytest

from voicegate.gateway.session.listener import ListenerClock, Underruns


def test_the_lowest_lead_is_what_was_left_just_before_more_came() -> None:
    clock = ListenerClock()
    clock.sent(200, 10.0)
    assert clock.lowest_lead_s is None
    clock.sent(100, 10.15)
    clock.sent(1000, 10.2)
    assert clock.lowest_lead_s == pytest.approx(0.05)
    assert clock.sent_ms == 1300


def test_a_listener_who_had_an_underrun_goes_on_when_more_comes() -> None:
    clock = ListenerClock()
    clock.sent(100, 10.0)
    clock.sent(100, 10.5)
    clock.sent(100, 10.5)
    clock.sent(100, 10.65)
    assert clock.lowest_lead_s == pytest.approx(-0.4)


def test_a_pause_after_which_a_context_comes_back_is_no_gap() -> None:
    clock = ListenerClock()
    clock.sent(200, 10.0)
    clock.sent(100, 10.15)
    clock.come_back(10.25)
    clock.sent(100, 10.28)
    assert clock.lowest_lead_s == pytest.approx(0.02), "it had audio in hand all the time"
    clock.come_back(60.0)
    clock.sent(100, 60.2)
    clock.sent(100, 60.25)
    assert clock.lowest_lead_s == pytest.approx(0.02)


def test_each_gap_is_counted_once() -> None:
    underruns = Underruns(8)
    underruns.opened("a")
    assert [underruns.reported("a", number) for number in (0, 2, 2, 1, 3)] == [0, 2, 0, 0, 1]
    assert underruns.reported("b", 5) == 0
    underruns.opened("a")  # another of that name
    assert underruns.reported("a", 1) == 1


def test_what_is_remembered_and_believed_is_bounded() -> None:
    underruns = Underruns(3)
    for name in "abcd":
        underruns.opened(name)
    assert [underruns.reported(name, 1) for name in "abcd"] == [0, 1, 1, 1]
    assert underruns.reported("d", 10**18) == 100
