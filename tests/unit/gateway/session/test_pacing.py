"""Audio leaves in time with its listener, to the packet."""

import pytest

from tests.unit.gateway.sessions import NOW, begin_context, error_of, new_session, sent, speaking
from voicegate.engine import interface as engine
from voicegate.engine.interface import UtteranceId
from voicegate.gateway.session.actions import CancelUtterance
from voicegate.gateway.session.session import Session
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage

FRAME_48K = 960


def paced(burst_ms: int) -> tuple[Session, UtteranceId]:
    return speaking(pace=wire.Pace(burst_ms=burst_ms))


def audio(utterance_id: UtteranceId, num_packets: int, first: int = 0) -> engine.AudioReady:
    packets = tuple(b"%d" % n for n in range(first, first + num_packets))
    return engine.AudioReady(utterance_id, packets, first * FRAME_48K)


def heard_until(session: Session, end_s: float) -> list[tuple[float, int, int]]:
    """When each audio message left, its pts in packets, and its packets, as a shell would have it happen."""
    heard: list[tuple[float, AudioMessage]] = []
    while (due_s := session.next_send_s) is not None and due_s <= end_s:
        heard += [(due_s, message) for message in sent(session.on_send_due(due_s))]
    return [(round(at_s - NOW, 6), audio.pts_48k // FRAME_48K, len(audio.packets)) for at_s, audio in heard]


def test_a_burst_and_then_real_time() -> None:
    session, utterance_id = paced(100)
    (first,) = sent(session.engine_event(audio(utterance_id, 10), NOW))
    assert (first.pts_48k, len(first.packets), first.is_first) == (0, 5, True)
    assert heard_until(session, NOW + 10) == [(0.02, 5, 1), (0.04, 6, 1), (0.06, 7, 1), (0.08, 8, 1), (0.1, 9, 1)]
    assert session.next_send_s is None


@pytest.mark.parametrize("burst_ms", [0, 1, 20, 39])
def test_less_than_two_packets_is_one_at_a_time(burst_ms: int) -> None:
    session, utterance_id = paced(burst_ms)
    assert len(sent(session.engine_event(audio(utterance_id, 3), NOW))[0].packets) == 1
    times_s = [at_s for at_s, _, _ in heard_until(session, NOW + 10)]
    assert times_s[1] - times_s[0] == pytest.approx(0.02)
    assert times_s[0] == pytest.approx(0.02 - max(0, burst_ms - 20) / 1000)


def test_who_had_an_underrun_gets_a_burst_again() -> None:
    session, utterance_id = paced(60)
    session.engine_event(audio(utterance_id, 3), NOW)
    (late,) = sent(session.engine_event(audio(utterance_id, 10, first=3), NOW + 5.0))
    assert len(late.packets) == 3
    assert heard_until(session, NOW + 5.03)[0] == (5.02, 6, 1)


def test_sequence_numbers_and_pts_have_no_gaps() -> None:
    session, utterance_id = paced(60)
    messages = sent(session.engine_event(audio(utterance_id, 4), NOW))
    messages += sent(session.engine_event(audio(utterance_id, 4, first=4), NOW))
    while (due_s := session.next_send_s) is not None:
        messages += sent(session.on_send_due(due_s))
    assert [message.sequence for message in messages] == list(range(len(messages)))
    assert b"".join(packet for message in messages for packet in message.packets) == b"01234567"
    assert [message.pts_48k // FRAME_48K for message in messages] == [0, 3, 4, 5, 6, 7]


def test_what_follows_audio_waits_for_it() -> None:
    session, utterance_id = paced(20)
    session.receive(wire.Flush(context="a", id="f"), NOW)
    session.receive(wire.End(context="a"), NOW)
    for event in (
        audio(utterance_id, 2),
        engine.Flushed(utterance_id, "f", 40),
        audio(utterance_id, 1, first=2),
        engine.Done(utterance_id, 60, 3, 2880),
    ):
        session.engine_event(event, NOW)
    first = sent(session.on_send_due(NOW + 0.02))
    assert [type(message).__name__ for message in first] == ["AudioMessage", "Flushed"]
    last = sent(session.on_send_due(NOW + 0.04))
    assert [type(message).__name__ for message in last] == ["AudioMessage", "AudioMessage", "Done"]
    assert last[1].is_last
    assert not session.contexts
    assert session.next_send_s is None


def test_a_player_that_paused_is_sent_no_more() -> None:
    session, utterance_id = paced(100)
    session.engine_event(audio(utterance_id, 100), NOW)
    for n in range(10):  # it has begun, and stands still at 20 ms
        session.receive(wire.Playback(context="a", played_ms=20), NOW + 0.05 * n)
        heard_until(session, NOW + 0.05 * (n + 1) - 0.001)
    pace = session.contexts["a"].pace
    assert pace is not None
    assert pace.sent_ms <= 20 + 100 + 50  # as much as it can hold, and what it might have played since its last report


def test_a_player_that_has_more_in_hand_than_its_burst_gets_all_that_follows_in_order() -> None:
    """It had seemed to play in time, and then says that it has not begun."""
    session, utterance_id = paced(200)
    for number in range(5):
        session.engine_event(audio(utterance_id, 5, first=5 * number), NOW + 0.1 * number)
    session.receive(wire.Playback("a", played_ms=0, buffer_ms=500), NOW + 0.45)
    assert not sent(session.engine_event(audio(utterance_id, 20, first=25), NOW + 0.45))
    heard = heard_until(session, NOW + 10)
    assert heard[0][0] == pytest.approx(0.45 + 0.5 - (0.2 - 0.02))
    assert [(first, num) for _, first, num in heard] == [(25 + n, 1) for n in range(20)]


def test_a_player_that_is_ahead_is_sent_more() -> None:
    session, utterance_id = paced(100)
    session.engine_event(audio(utterance_id, 100), NOW)
    session.receive(wire.Playback(context="a", played_ms=100), NOW)
    assert len(sent(session.on_send_due(NOW))[0].packets) == 5


def test_cancel_drops_what_waits_and_splits_at_what_was_sent() -> None:
    session, utterance_id = paced(60)
    session.engine_event(audio(utterance_id, 50), NOW)
    assert session.receive(wire.Cancel(context="a"), NOW) == [CancelUtterance(utterance_id, 60)]
    assert session.next_send_s is None
    cancelled = engine.Cancelled(utterance_id, 1000, 0, "hi", " ")
    assert sent(session.engine_event(cancelled, NOW)) == [wire.Cancelled("a", 1000, "hi", " ")]


def test_what_the_client_played_wins() -> None:
    session, utterance_id = paced(60)
    session.engine_event(audio(utterance_id, 50), NOW)
    assert session.receive(wire.Cancel(context="a", played_ms=40), NOW) == [CancelUtterance(utterance_id, 40)]


def test_cancel_of_what_the_engine_has_finished_is_answered_at_once() -> None:
    session, utterance_id = paced(60)
    session.receive(wire.End(context="a"), NOW)
    session.engine_event(audio(utterance_id, 50), NOW)
    session.engine_event(engine.Done(utterance_id, 1000, 50, 48_000), NOW)
    (done,) = sent(session.receive(wire.Cancel(context="a"), NOW))
    assert isinstance(done, wire.Done)
    assert not session.contexts


def test_an_engine_that_hangs_takes_back_nothing_that_it_made_whole() -> None:
    session = new_session()
    made_id, half_made_id = (begin_context(session, name, pace=wire.Pace(burst_ms=100)) for name in ("made", "half"))
    session.receive(wire.End(context="made"), NOW)
    for utterance_id in (made_id, half_made_id):
        session.engine_event(audio(utterance_id, 10), NOW)
    session.engine_event(engine.Done(made_id, 200, 10, 9600), NOW)
    error, cancel = session.engine_hangs("it hangs")
    assert (error_of([error]).context, cancel) == ("half", CancelUtterance(half_made_id))
    told = sent(session.on_send_due(NOW + 0.1))
    assert sum(len(message.packets) for message in told[:-1]) == 5, "the rest of it"
    assert isinstance(told[-1], wire.Done)


def test_a_context_without_a_burst_is_not_paced() -> None:
    session, utterance_id = speaking()
    assert sum(len(message.packets) for message in sent(session.engine_event(audio(utterance_id, 100), NOW))) == 100
    assert session.next_send_s is None


def test_what_waits_behind_the_end_of_a_drained_context_is_dropped() -> None:
    """The flush leaves it silent, so a server that drains sends it away; the engine's own end waits behind that."""
    session, utterance_id = speaking(pace=wire.Pace(burst_ms=100))
    session.receive(wire.Flush("a", "f"), NOW)
    session.engine_event(audio(utterance_id, 20), NOW)
    session.engine_event(engine.Flushed(utterance_id, "f", 400), NOW)
    session.drain(20_000)
    session.engine_event(engine.Failed(utterance_id, "its process has ended"), NOW)
    told = [message for tenth in range(1, 9) for message in sent(session.on_send_due(NOW + tenth / 10))]
    assert [message.code for message in told if isinstance(message, wire.Error)] == ["overloaded"]
    assert not session.contexts
