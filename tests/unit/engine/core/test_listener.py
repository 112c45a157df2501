"""Audio left to a listener: as it plays, as its player says, while it pauses. Nothing is gained by lying."""

import math

from hypothesis import given
from hypothesis import strategies as st

from voicegate.engine.core.listener import Listener
from voicegate.engine.interface import ListenerReport


def heard(*, audio_s: float = 4.0, at_s: float = 10.0) -> Listener:
    listener = Listener()
    listener.send(audio_s, at_s)
    return listener


def test_it_plays_from_the_first_packet_on_and_resumes_when_audio_comes() -> None:
    listener = Listener()
    assert listener.deadline_s is None
    listener.send(1.0, 10.0)
    listener.send(1.0, 10.5)
    assert listener.deadline_s == 12.0
    listener.send(1.0, 20.0)
    assert listener.deadline_s == 21.0


def test_who_began_late_has_more_left() -> None:
    listener = heard()
    listener.note(ListenerReport(played_ms=500), made_s=4.0, now_s=12.0)
    assert listener.deadline_s == 15.5
    listener.send(1.0, 12.5)
    assert listener.deadline_s == 16.5


def test_nobody_has_less_left_than_who_plays_without_a_break() -> None:
    listener = heard()
    listener.note(ListenerReport(played_ms=4_000), made_s=4.0, now_s=11.0)
    assert listener.deadline_s == 14.0


def test_what_was_said_too_high_is_taken_back_by_the_next_report() -> None:
    listener = heard()
    listener.note(ListenerReport(played_ms=0), made_s=4.0, now_s=12.0)
    assert listener.deadline_s == 16.0
    listener.note(ListenerReport(played_ms=2_500), made_s=4.0, now_s=12.5)
    assert listener.deadline_s == 14.0


def test_while_it_pauses_its_clock_stands() -> None:
    listener = heard()
    listener.note(ListenerReport(played_ms=1_000, is_playing=False), made_s=4.0, now_s=11.0)
    assert listener.deadline_s == math.inf
    assert listener.held_s == 3.0
    listener.send(1.0, 50.0)
    assert listener.held_s == 4.0
    listener.note(ListenerReport(), made_s=5.0, now_s=100.0)
    assert listener.deadline_s == 104.0
    assert listener.held_s is None


def test_who_comes_back_when_all_was_played_waits_anew() -> None:
    listener = heard(audio_s=4.0, at_s=10.0)
    listener.wait_anew(13.9)
    assert listener.deadline_s == 14.0, "it has audio to play"
    listener.wait_anew(14.0)
    assert listener.deadline_s is None
    listener.send(1.0, 20.0)
    assert listener.deadline_s == 21.0


def test_a_rest_that_outlasts_the_audio_is_no_underrun_of_its_player() -> None:
    """Else a listener of an agent that pauses would be served a second earlier from its fourth pause on."""
    listener = heard(audio_s=4.0, at_s=10.0)
    listener.note(ListenerReport(played_ms=4_000, num_underruns=1), made_s=4.0, now_s=14.5)
    listener.wait_anew(20.0)
    listener.send(4.0, 20.0)
    assert listener.deadline_s == 24.0
    listener.note(ListenerReport(played_ms=5_000, num_underruns=2), made_s=8.0, now_s=21.0)
    assert listener.deadline_s == 23.75, "this one was one"


def test_who_paused_with_audio_in_hand_comes_back_to_it() -> None:
    listener = heard(audio_s=4.0, at_s=10.0)
    listener.note(ListenerReport(played_ms=1_000, is_playing=False), made_s=4.0, now_s=11.0)
    listener.wait_anew(60.0)
    assert listener.held_s == 3.0


def test_who_pauses_before_the_first_sound_has_that_in_hand() -> None:
    listener = Listener()
    listener.note(ListenerReport(is_playing=False), made_s=0.0, now_s=5.0)
    assert listener.deadline_s is None
    assert listener.held_s is None
    listener.send(1.0, 10.0)
    assert listener.deadline_s == math.inf
    assert listener.held_s == 1.0


def test_who_had_an_underrun_is_served_earlier_up_to_a_second() -> None:
    listener = heard()
    listener.note(ListenerReport(played_ms=1_000, num_underruns=1), made_s=4.0, now_s=11.0)
    assert listener.deadline_s == 13.75
    listener.note(ListenerReport(played_ms=1_000, num_underruns=10**9), made_s=4.0, now_s=11.0)
    assert listener.deadline_s == 13.0


@given(
    st.lists(
        st.one_of(
            st.floats(0.02, 3.0),
            st.builds(ListenerReport, st.none() | st.integers(0, 2**63), st.booleans(), st.integers(0, 2**63)),
        ),
        max_size=30,
    )
)
def test_whatever_is_said_nobody_comes_more_than_a_second_early(steps: list[float | ListenerReport]) -> None:
    listener, honest, made_s, now_s = Listener(), Listener(), 0.0, 0.0
    for step in steps:
        now_s += 0.4
        if isinstance(step, ListenerReport):
            listener.note(step, made_s=made_s, now_s=now_s)
        else:
            made_s += step
            listener.send(step, now_s)
            honest.send(step, now_s)
    if honest.deadline_s is not None:
        assert listener.deadline_s is not None
        assert listener.deadline_s >= min(honest.deadline_s, now_s + made_s) - 1.0 - 1e-6
