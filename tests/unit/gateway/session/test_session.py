"""The state machine of one socket: the table of moves, legal and illegal, then what each input comes to."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import UNSET

from tests.unit.gateway.sessions import (
    INFO,
    MESSAGES,
    NOW,
    TEXT,
    begin_context,
    error_of,
    new_session,
    open_context,
    opened,
    sent,
    session_in,
    speaking,
)
from voicegate.engine import interface as engine
from voicegate.engine.interface import ListenerReport, SpeakingMode, UtteranceId
from voicegate.gateway.auth.keyring import Allowance
from voicegate.gateway.session.actions import (
    Action,
    CancelUtterance,
    Close,
    EndText,
    FlushText,
    NoteListener,
    PushText,
    Submit,
    Withdraw,
)
from voicegate.gateway.session.context import ACCEPTS, ContextState
from voicegate.gateway.session.observer import Observer
from voicegate.gateway.session.opening import SessionLimits
from voicegate.gateway.session.quota import Holding, Owner, QuotaLimits, Quotas
from voicegate.gateway.session.session import Session
from voicegate.protocol import messages as wire
from voicegate.protocol.errors import CloseCode, ErrorCode, ProtocolViolation


def snapshot(session: Session) -> Any:
    return {name: copy.copy(value) for name, value in vars(copy.deepcopy(session)).items()}


ALL_MOVES = [(state, kind) for state in (None, *ContextState) for kind in MESSAGES]
ILLEGAL_MOVES = [(state, kind) for state, kind in ALL_MOVES if kind not in ACCEPTS[state]]


def test_the_table_says_what_the_protocol_says() -> None:
    legal = {(state.value if state else None, kind.__name__): ACCEPTS[state][kind].value
             for state in ACCEPTS for kind in ACCEPTS[state]}  # fmt: skip
    assert legal == {
        (None, "Open"): "open",
        ("open", "Text"): "open",
        ("open", "Flush"): "open",
        ("open", "End"): "draining",
        ("open", "Cancel"): "cancelling",
        ("open", "Playback"): "open",
        ("draining", "Cancel"): "cancelling",
        ("draining", "Playback"): "draining",
        ("cancelling", "Cancel"): "cancelling",
        ("cancelling", "Playback"): "cancelling",
    }


@pytest.mark.parametrize(("state", "kind"), [move for move in ALL_MOVES if move not in ILLEGAL_MOVES and move[0]])
def test_legal_moves_lead_where_the_table_says(state: ContextState, kind: type) -> None:
    session = session_in(state)
    actions = session.receive(MESSAGES[kind], NOW)
    assert session.contexts["a"].state is ACCEPTS[state][kind]
    assert not any(isinstance(message, wire.Error) for message in sent(actions))


@pytest.mark.parametrize(("state", "kind"), ILLEGAL_MOVES)
def test_illegal_moves_are_named_and_change_nothing(state: ContextState | None, kind: type) -> None:
    session = session_in(state)
    before = snapshot(session)
    actions = session.receive(MESSAGES[kind], NOW)
    assert snapshot(session) == before
    if state is None and kind is wire.Playback:
        assert actions == []  # a player's last reports come after `done`
        return
    error = error_of(actions)
    expected = ErrorCode.ILLEGAL_IN_STATE
    if state is None:
        expected = ErrorCode.UNKNOWN_CONTEXT
    elif kind is wire.Open:
        expected = ErrorCode.CONTEXT_EXISTS
    assert (error.code, error.context, error.fatal) == (expected.value, "a", False)


# --- open -------------------------------------------------------------------------------------------------


def test_open_is_answered_and_the_engine_hears_of_it_with_the_first_word() -> None:
    session = new_session()
    (opened,) = sent(session.receive(wire.Open(context="a", voice="ben", speed=1.5, seed=7, mode="clause"), NOW))
    assert opened == wire.Opened("a", 0, "ben", wire.Format(sample_rate=24_000), 24_000, 312)
    (submit,) = session.receive(wire.Text(context="a", text="Hi"), NOW)
    assert isinstance(submit, Submit)
    request = submit.request
    assert (request.voice, request.speed, request.seed, request.mode) == ("ben", 1.5, 7, SpeakingMode.CLAUSE)
    assert session.submitted(request.utterance_id, NOW) == [PushText(request.utterance_id, "Hi")]
    assert session.receive(wire.Text(context="a", text=" you"), NOW) == [PushText(request.utterance_id, " you")]


def test_pcm_has_no_pre_skip() -> None:
    session = new_session()
    (opened,) = sent(session.receive(wire.Open(context="a", format=wire.Format(codec="pcm_s16le")), NOW))
    assert opened.pre_skip == 0
    assert session.contexts["a"].request.audio.codec is engine.Codec.PCM_S16LE


@pytest.mark.parametrize(
    ("refusal", "code", "retry_after_ms"),
    [
        (engine.UnknownVoice("no such voice"), "unknown_voice", None),
        (engine.Unsupported("no instruct"), "unsupported", None),
        (engine.BadRequest("instruct is too long"), "bad_message", None),
        (engine.Overloaded("full", retry_after_ms=250), "overloaded", 250),
        (engine.EngineStopped("stopped"), "engine_failed", None),
        (engine.EngineError("other"), "engine_failed", None),
    ],
)
def test_an_engines_refusal_ends_the_context(
    refusal: engine.EngineError, code: str, retry_after_ms: int | None
) -> None:
    session, utterance_id = opened()
    (submit,) = session.receive(wire.Text(context="a", text="hi"), NOW)
    assert isinstance(submit, Submit)
    error = error_of(session.refused(utterance_id, refusal))
    assert (error.code, error.message, error.context, error.fatal) == (code, str(refusal), "a", True)
    assert (error.retry_after_ms or None) == retry_after_ms
    assert not session.contexts
    begin_context(session)


def test_the_context_after_the_last_is_refused_and_the_socket_stays() -> None:
    session = new_session(contexts=2)
    first = begin_context(session, "a")
    begin_context(session, "b")
    error = error_of(session.receive(wire.Open(context="c"), NOW))
    assert (error.code, error.context, error.fatal) == ("too_many_contexts", "c", True)
    assert "2" in error.message
    session.engine_event(engine.Failed(first, "x"), NOW)
    begin_context(session, "c")


def test_handles_differ_and_are_not_used_again_at_once() -> None:
    session = new_session()
    handles = []
    for _ in range(3):
        utterance_id = begin_context(session)
        handles.append(session.contexts["a"].handle)
        session.engine_event(engine.Failed(utterance_id, "x"), NOW)
    assert len(set(handles)) == 3


def test_handles_come_round_past_those_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.session.session.NUM_HANDLES", 4)
    session = new_session()
    begin_context(session, "stays")
    for _ in range(10):
        utterance_id = begin_context(session)
        assert session.contexts["a"].handle != session.contexts["stays"].handle
        session.engine_event(engine.Failed(utterance_id, "x"), NOW)


# --- text, flush, end -------------------------------------------------------------------------------------


def test_text_flush_and_end_reach_the_engine_as_written() -> None:
    session, utterance_id = speaking()
    assert session.receive(wire.Text(context="a", text=" Hé\u200d😀"), NOW) == [PushText(utterance_id, " Hé\u200d😀")]
    assert session.receive(wire.Flush(context="a", id="f"), NOW) == [FlushText(utterance_id, "f")]
    assert session.receive(wire.End(context="a"), NOW) == [EndText(utterance_id)]


def test_empty_text_is_fine_and_nothing() -> None:
    session, _ = opened()
    assert session.receive(wire.Text(context="a", text=""), NOW) == []
    assert session.contexts["a"].first_text_s is None


def test_text_is_counted_in_bytes() -> None:
    session, _ = opened(text_bytes=4)
    assert len(session.receive(wire.Text(context="a", text="éé"), NOW)) == 1
    error = error_of(session.receive(wire.Text(context="a", text="ééx"), NOW))
    assert (error.code, error.context, error.fatal) == ("bad_message", "a", False)
    assert "4" in error.message


def test_a_context_takes_so_much_text_and_no_more() -> None:
    session, utterance_id = opened(text_bytes=4, context_text_bytes=6)
    session.receive(wire.Text(context="a", text="1234"), NOW)
    session.submitted(utterance_id, NOW)
    error = error_of(session.receive(wire.Text(context="a", text="567"), NOW))
    assert (error.code, error.fatal) == ("bad_message", False)
    assert session.receive(wire.Text(context="a", text="56"), NOW) == [PushText(utterance_id, "56")]


def test_unanswered_flushes_are_limited() -> None:
    session, utterance_id = speaking(unanswered_flushes=2)
    flush = wire.Flush(context="a", id="f")
    for _ in range(2):
        assert session.receive(flush, NOW) == [FlushText(utterance_id, "f")]
    assert error_of(session.receive(flush, NOW)).code == "rate_limited"
    assert sent(session.engine_event(engine.Flushed(utterance_id, "f", 40), NOW)) == [wire.Flushed("a", "f", 40)]
    assert session.receive(flush, NOW) == [FlushText(utterance_id, "f")]


# --- before there is anything to say ----------------------------------------------------------------------


def test_text_without_sound_waits_for_some_with() -> None:
    session, utterance_id = opened()
    for text in (" ", "...", "\n(", "\u201c"):
        assert session.receive(wire.Text(context="a", text=text), NOW) == []
    (submit,) = session.receive(wire.Text(context="a", text="Hi"), NOW)
    assert isinstance(submit, Submit)
    assert session.submitted(utterance_id, NOW) == [PushText(utterance_id, " ...\n(\u201cHi")]


@pytest.mark.parametrize("text", ["a", "7", "%", "=", "你", "é", "😀", ". a", "." * 1025])
def test_what_may_sound_is_something_to_say(text: str) -> None:
    session, _ = opened()
    (submit,) = session.receive(wire.Text(context="a", text=text), NOW)
    assert isinstance(submit, Submit)


def test_a_flush_with_nothing_to_say_is_answered_at_once() -> None:
    session, utterance_id = opened()
    for flush_id in ("1", "2"):
        assert sent(session.receive(wire.Flush(context="a", id=flush_id), NOW)) == [wire.Flushed("a", flush_id, 0)]
    session.receive(wire.Text(context="a", text="hi"), NOW)
    assert session.submitted(utterance_id, NOW) == [PushText(utterance_id, "hi")]


def test_a_flush_divides_text_for_the_engine_too_and_is_answered_once() -> None:
    session, utterance_id = opened()
    answers = []
    for text, flush_id in (("...", "1"), (" (", "2")):
        session.receive(wire.Text(context="a", text=text), NOW)
        answers += sent(session.receive(wire.Flush(context="a", id=flush_id), NOW))
    assert answers == [wire.Flushed("a", "1", 0), wire.Flushed("a", "2", 0)]
    session.receive(wire.Text(context="a", text=")hi"), NOW)
    assert session.submitted(utterance_id, NOW) == [
        PushText(utterance_id, "... ("),
        FlushText(utterance_id, "2"),
        PushText(utterance_id, ")hi"),
    ]
    session.receive(wire.Flush(context="a", id="3"), NOW)
    assert session.engine_event(engine.Flushed(utterance_id, "2", 0), NOW) == []
    assert sent(session.engine_event(engine.Flushed(utterance_id, "3", 40), NOW)) == [wire.Flushed("a", "3", 40)]


def test_an_end_with_nothing_to_say_is_done() -> None:
    session, _ = opened()
    session.receive(wire.Text(context="a", text="..."), NOW)
    audio, done = sent(session.receive(wire.End(context="a"), NOW))
    assert (audio.sequence, audio.pts_48k, audio.packets, audio.is_first, audio.is_last) == (0, 0, (), True, True)
    assert done == wire.Done("a", 0, 0, wire.Timing(), characters=3)
    assert not session.contexts


def test_a_cancel_with_nothing_to_say_gives_the_text_back() -> None:
    session, _ = opened()
    session.receive(wire.Text(context="a", text="..."), NOW)
    assert sent(session.receive(wire.Cancel(context="a"), NOW)) == [wire.Cancelled("a", 0, "", "...")]
    assert not session.contexts


# --- while the engine has no room -------------------------------------------------------------------------


def waiting(**limits: Any) -> tuple[Session, UtteranceId]:
    """Its context has said `TEXT`, and the engine has not answered."""
    session, utterance_id = opened(**limits)
    (submit,) = session.receive(wire.Text(context="a", text=TEXT), NOW)
    assert isinstance(submit, Submit)
    return session, utterance_id


def test_what_comes_while_one_waits_reaches_the_engine_in_order() -> None:
    session, utterance_id = waiting()
    for message in (
        wire.Flush(context="a", id="1"),
        wire.Text(context="a", text="and more"),
        wire.Flush(context="a", id="2"),
        wire.End(context="a"),
    ):
        assert session.receive(message, NOW) == []
    assert error_of(session.receive(wire.Text(context="a", text="x"), NOW)).code == "illegal_in_state"
    assert session.submitted(utterance_id, NOW + 0.5) == [
        PushText(utterance_id, TEXT),
        FlushText(utterance_id, "1"),
        PushText(utterance_id, "and more"),
        FlushText(utterance_id, "2"),
        EndText(utterance_id),
    ]
    assert sent(session.engine_event(engine.Flushed(utterance_id, "1", 40), NOW)) == [wire.Flushed("a", "1", 40)]


def test_flushes_are_limited_while_one_waits() -> None:
    session, _ = waiting(unanswered_flushes=2)
    for _ in range(2):
        assert session.receive(wire.Flush(context="a"), NOW) == []
    assert error_of(session.receive(wire.Flush(context="a"), NOW)).code == "rate_limited"


def test_the_wait_counts_in_what_is_measured() -> None:
    session, utterance_id = waiting()
    session.submitted(utterance_id, NOW + 0.5)
    session.engine_event(engine.AudioReady(utterance_id, (b"x",), 0), NOW + 0.75)
    measured = engine.Timing(queue_ms=1.0, first_packet_ms=240.0)
    done = sent(session.engine_event(engine.Done(utterance_id, 40, 2, 0, measured), NOW + 1.0))[-1]
    assert done.timing == wire.Timing(ttfb_ms=750.0, queue_ms=501.0, first_packet_ms=740.0)


def test_a_cancel_while_one_waits_is_answered_at_once() -> None:
    session, utterance_id = waiting()
    session.receive(wire.Text(context="a", text="and more"), NOW)
    withdraw, cancelled = session.receive(wire.Cancel(context="a"), NOW)
    assert withdraw == Withdraw(utterance_id)
    assert sent([cancelled]) == [wire.Cancelled("a", 0, "", TEXT + "and more")]
    assert not session.contexts


@pytest.mark.parametrize(
    "end",
    [Session.drain_deadline, Session.engine_stopped, Session.slow_consumer, Session.flooded, Session.disconnected],
)
def test_whoever_waits_on_a_socket_that_ends_waits_no_more(end: Callable[[Session], list[Action]]) -> None:
    session, utterance_id = waiting()
    actions = end(session)
    assert Withdraw(utterance_id) in actions
    assert not any(isinstance(action, CancelUtterance) for action in actions)


def test_a_drain_waits_for_who_waits() -> None:
    session, utterance_id = waiting()
    session.receive(wire.Flush(context="a"), NOW)
    assert sent(session.drain(5000)) == [wire.Draining(5000)]
    overloaded = engine.Overloaded("no room", retry_after_ms=700)
    error, close = session.refused(utterance_id, overloaded)
    assert error_of([error]).retry_after_ms == 700
    assert isinstance(close, Close)


# --- time and quotas --------------------------------------------------------------------------------------


def expired(actions: list[Action]) -> list[tuple[str, str, bool]]:
    return [(m.code, m.context, m.fatal) for m in sent(actions) if isinstance(m, wire.Error)]


def test_an_idle_context_ends_to_the_second() -> None:
    session = new_session(context_idle_s=10.0)
    assert session.next_deadline_s(NOW) is None
    open_context(session, "silent")
    assert session.next_deadline_s(NOW) == NOW + 10.0
    assert session.on_deadline(NOW + 9.9) == []
    assert expired(session.on_deadline(NOW + 10.0)) == [("expired", "silent", True)]
    assert session.next_deadline_s(NOW + 10.0) is None


@pytest.mark.parametrize(
    "message",
    [MESSAGES[wire.Text], MESSAGES[wire.Flush], MESSAGES[wire.Playback], wire.Text(context="a", text="")],
)
def test_whatever_names_a_context_keeps_it(message: Any) -> None:
    session, _ = speaking(context_idle_s=10.0)
    session.receive(message, NOW + 9.0)
    assert session.on_deadline(NOW + 10.0) == []
    assert session.next_deadline_s(NOW + 10.0) == NOW + 19.0


def test_a_context_that_speaks_is_not_idle() -> None:
    session, utterance_id = speaking(context_idle_s=10.0)
    session.engine_event(engine.AudioReady(utterance_id, (b"x",), 0), NOW + 9.0)
    assert session.on_deadline(NOW + 18.9) == []
    actions = session.on_deadline(NOW + 19.0)
    assert expired(actions) == [("expired", "a", True)]
    assert actions[-1] == CancelUtterance(utterance_id)
    assert session.engine_event(engine.Cancelled(utterance_id, 0, 0, "", ""), NOW + 19.0) == []


@pytest.mark.parametrize("message", [wire.End(context="a"), wire.Cancel(context="a")])
def test_who_waits_for_the_server_is_not_idle(message: Any) -> None:
    session, _ = speaking(context_idle_s=10.0)
    session.receive(message, NOW)
    assert session.next_deadline_s(NOW + 3.0) == NOW + 13.0, "when one that is opened now may be idle"
    assert session.on_deadline(NOW + 1000.0) == []


def test_a_context_has_its_time_whatever_it_does() -> None:
    session, utterance_id = speaking(context_idle_s=10.0, context_life_s=25.0)
    for at_s in range(101, 125):
        session.receive(wire.Text(context="a", text="more "), float(at_s))
        session.engine_event(engine.AudioReady(utterance_id, (b"x",), 0), float(at_s))
        assert session.on_deadline(float(at_s)) == []
    assert session.next_deadline_s(NOW + 24.0) == NOW + 25.0
    actions = session.on_deadline(NOW + 25.0)
    assert expired(actions) == [("expired", "a", True)]
    assert "25 s" in sent(actions)[0].message
    assert actions[-1] == CancelUtterance(utterance_id)


def test_idle_contexts_of_a_drained_socket_close_it() -> None:
    session, _ = speaking(context_idle_s=10.0)
    session.drain(60_000)
    assert isinstance(session.on_deadline(NOW + 10.0)[-1], Close)


def sessions_of(limits: QuotaLimits, *owners: str) -> list[Session]:
    quotas = Quotas(limits)
    return [Session(session_id=name, info=INFO, quotas=quotas, owner=Owner(name)) for name in owners]


def test_an_owner_has_so_many_contexts_over_all_its_sockets() -> None:
    one, same, other = sessions_of(QuotaLimits(per_address=Allowance(contexts=1)), "x", "x", "y")
    open_context(one)
    error = error_of(same.receive(wire.Open(context="b"), NOW))
    assert (error.code, error.context, error.fatal) == ("too_many_contexts", "b", True)
    assert "1 contexts are open from your address" in error.message
    open_context(other)
    one.disconnected()
    open_context(same)


def test_an_owner_has_so_many_contexts_that_speak() -> None:
    one, same = sessions_of(QuotaLimits(per_address=Allowance(utterances=1)), "x", "x")
    utterance_id = begin_context(one)
    open_context(same)
    error = error_of(same.receive(wire.Text(context="a", text="me too"), NOW))
    assert (error.code, error.context, error.fatal) == ("too_many_contexts", "a", True)
    assert "1 contexts have something to say" in error.message
    one.engine_event(engine.Done(utterance_id, 0, 0, 0), NOW)
    begin_context(same)


def test_who_has_said_all_makes_way_for_another_of_its_owner() -> None:
    one, same = sessions_of(QuotaLimits(per_address=Allowance(utterances=1)), "x", "x")
    utterance_id = begin_context(one)
    assert one.engine_event(engine.AtRest(utterance_id, len(TEXT) - 1), NOW) == [], "of text before the last"
    open_context(same, "b")
    assert error_of(same.receive(wire.Text(context="b", text="me too"), NOW)).code == "too_many_contexts"
    assert one.engine_event(engine.AtRest(utterance_id, len(TEXT)), NOW) == []
    other_id = begin_context(same)
    error, cancel = one.receive(wire.Text(context="a", text="again"), NOW)
    assert error_of([error]).code == "too_many_contexts"
    assert cancel == CancelUtterance(utterance_id)
    same.engine_event(engine.AtRest(other_id, len(TEXT)), NOW)
    begin_context(one)


def test_an_engine_that_hangs_is_nothing_to_those_at_rest() -> None:
    session = new_session()
    resting, speaking = begin_context(session, "rests"), begin_context(session, "speaks")
    session.engine_event(engine.AtRest(resting, len(TEXT)), NOW)
    error, cancel = session.engine_hangs("it hangs")
    assert (error_of([error]).context, cancel) == ("speaks", CancelUtterance(speaking))


class Gaps(Observer):
    def __init__(self) -> None:
        self.num = 0

    def underruns(self, number: int) -> None:
        self.num += number


def resting(*, num_packets: int) -> tuple[Session, UtteranceId, Gaps]:
    """Context a of a session, as soon as so many packets are made; and the gaps that its player tells of."""
    gaps = Gaps()
    session = new_session(observers=[gaps])
    utterance_id = begin_context(session)
    session.engine_event(engine.AudioReady(utterance_id, (b"x",) * num_packets, 0), NOW)
    session.engine_event(engine.AtRest(utterance_id, len(TEXT)), NOW)
    return session, utterance_id, gaps


def test_a_gap_in_audio_that_was_sent_before_a_rest_is_one() -> None:
    """After a flush a context rests as soon as its audio is made, and its player may have seconds of it left."""
    session, _, gaps = resting(num_packets=500)
    session.receive(wire.Playback(context="a", played_ms=4000, underruns=1), NOW + 5)
    assert gaps.num == 1
    session.receive(wire.Playback(context="a", played_ms=10_000, underruns=2), NOW + 11)
    assert gaps.num == 1, "the rest"


def test_a_player_that_runs_out_of_audio_at_a_rest_has_heard_no_gap() -> None:
    """Its agent calls a tool: the alert that listeners hear gaps is not meant."""
    session, utterance_id, gaps = resting(num_packets=10)
    session.receive(wire.Playback(context="a", played_ms=200, underruns=1), NOW + 1)
    assert gaps.num == 0
    session.receive(wire.Text(context="a", text="again"), NOW + 30)
    session.submitted(utterance_id, NOW + 30)
    for pts_48k in (9600, 19200):
        session.engine_event(engine.AudioReady(utterance_id, (b"x",) * 10, pts_48k), NOW + 30.1)
    assert session.contexts["a"].listener.lowest_lead_s == pytest.approx(0.2)
    session.receive(wire.Playback(context="a", played_ms=600, underruns=2), NOW + 31)
    assert gaps.num == 1


def test_what_fails_while_it_waits_for_a_place_waits_no_longer() -> None:
    session, utterance_id = speaking()
    session.engine_event(engine.AtRest(utterance_id, len(TEXT)), NOW)
    (submit,) = session.receive(wire.Text(context="a", text="again"), NOW)
    assert isinstance(submit, Submit)
    assert submit.is_return
    withdraw, error = session.engine_event(engine.Failed(utterance_id, "x"), NOW)
    assert withdraw == Withdraw(utterance_id)
    assert error_of([error]).code == "engine_failed"


def test_a_refused_utterance_is_not_held() -> None:
    (session,) = sessions_of(QuotaLimits(per_address=Allowance(utterances=1)), "x")
    utterance_id = open_context(session)
    session.receive(wire.Text(context="a", text="hi"), NOW)
    session.refused(utterance_id, engine.Overloaded("full", retry_after_ms=1))
    begin_context(session)


def test_a_server_has_so_many_contexts() -> None:
    one, other = sessions_of(QuotaLimits(contexts=1), "x", "y")
    open_context(one)
    error = error_of(other.receive(wire.Open(context="b"), NOW))
    assert (error.code, error.context, error.fatal) == ("overloaded", "b", True)
    assert isinstance(error.retry_after_ms, int)


# --- audio and ends ---------------------------------------------------------------------------------------


def test_audio_is_numbered_and_the_last_message_is_the_exact_end() -> None:
    session, utterance_id = speaking()
    session.receive(wire.End(context="a"), NOW)
    events = [
        engine.AudioReady(utterance_id, (b"1", b"2"), 0),
        engine.AudioReady(utterance_id, (b"3",), 1920),
        engine.Done(utterance_id, 53, 3, 2856),
    ]
    messages = [message for event in events for message in sent(session.engine_event(event, NOW))]
    assert [(m.sequence, m.pts_48k, m.packets, m.is_first, m.is_last) for m in messages[:3]] == [
        (0, 0, (b"1", b"2"), True, False),
        (1, 1920, (b"3",), False, False),
        (2, 2856, (), False, True),
    ]
    assert messages[3] == wire.Done("a", 53, 3, wire.Timing(ttfb_ms=0.0), characters=3)
    assert not session.contexts


def test_an_engine_that_makes_much_at_once_is_sent_by_the_second() -> None:
    session, utterance_id = speaking()
    packets = tuple(bytes([number]) for number in range(120))  # of 20 ms
    messages = sent(session.engine_event(engine.AudioReady(utterance_id, packets, 0), NOW))
    assert [(m.sequence, m.pts_48k, len(m.packets)) for m in messages] == [(0, 0, 50), (1, 48_000, 50), (2, 96_000, 20)]
    assert sum((m.packets for m in messages), ()) == packets


def test_done_tells_that_speech_was_cut_off() -> None:
    session, utterance_id = speaking()
    _, done = sent(session.engine_event(engine.Done(utterance_id, 0, 0, 0, is_truncated=True), NOW))
    assert done.truncated is True


def test_a_context_without_sound_has_a_last_message_too() -> None:
    session, utterance_id = speaking()
    audio, done = sent(session.engine_event(engine.Done(utterance_id, 0, 0, 0), NOW))
    assert (audio.sequence, audio.packets, audio.is_first, audio.is_last) == (0, (), True, True)
    assert done.audio_ms == 0


def test_ttfb_is_from_the_first_text_to_the_first_audio() -> None:
    session, utterance_id = opened()
    for at_s, text in ((9.0, ""), (10.0, "a"), (10.1, "b")):
        session.receive(wire.Text(context="a", text=text), at_s)
    for at_s in (10.25, 10.5):
        session.engine_event(engine.AudioReady(utterance_id, (b"x",), 0), at_s)
    measured = engine.Timing(queue_ms=1.0, llm_first_token_ms=2.0, first_chunk_ms=3.0, first_packet_ms=4.0)
    done = sent(session.engine_event(engine.Done(utterance_id, 40, 2, 0, measured), 11.0))[-1]
    assert done.timing == wire.Timing(250.0, 1.0, 2.0, 3.0, 4.0)


def test_after_cancel_only_the_end_is_heard() -> None:
    session, utterance_id = speaking()
    cancel = wire.Cancel(context="a", played_ms=80)
    assert session.receive(cancel, NOW) == [CancelUtterance(utterance_id, 80)]
    assert session.receive(cancel, NOW) == []
    for event in (
        engine.AudioReady(utterance_id, (b"x",), 0),
        engine.Alignment(utterance_id, (), estimated=True),
        engine.Flushed(utterance_id, "f", 40),
    ):
        assert session.engine_event(event, NOW) == []
    cancelled = engine.Cancelled(utterance_id, 100, 0, "spoken ", "not")
    assert sent(session.engine_event(cancelled, NOW)) == [wire.Cancelled("a", 100, "spoken ", "not")]
    assert not session.contexts


def test_done_that_crossed_a_cancel_ends_without_audio() -> None:
    session, utterance_id = speaking()
    session.receive(wire.Cancel(context="a"), NOW)
    (done,) = sent(session.engine_event(engine.Done(utterance_id, 100, 5, 4800), NOW))
    assert done == wire.Done("a", 100, 5, wire.Timing(), characters=3)


def test_a_failure_ends_its_context_only() -> None:
    session = new_session()
    failing, other = begin_context(session, "a"), begin_context(session, "b")
    error = error_of(session.engine_event(engine.Failed(failing, "broken"), NOW))
    assert (error.code, error.message, error.context, error.fatal) == ("engine_failed", "broken", "a", True)
    assert len(session.engine_event(engine.AudioReady(other, (b"x",), 0), NOW)) == 1


def test_a_reused_id_hears_nothing_of_its_predecessor() -> None:
    session = new_session()
    old = begin_context(session)
    session.engine_event(engine.Done(old, 0, 0, 0), NOW)
    new = begin_context(session)
    assert old != new
    assert session.engine_event(engine.AudioReady(old, (b"x",), 0), NOW) == []


def test_alignment_is_passed_on() -> None:
    session, utterance_id = speaking()
    event = engine.Alignment(utterance_id, (engine.AlignedText("hi", 0, 80, 0, 2),), estimated=False)
    assert sent(session.engine_event(event, NOW)) == [
        wire.Alignment("a", (wire.AlignmentItem("hi", 0, 80, 0, 2),), False)
    ]


def test_a_report_of_the_player_goes_to_the_engine_where_it_is_news() -> None:
    session, utterance_id = speaking()
    report = wire.Playback(context="a", played_ms=100, buffer_ms=300)
    assert session.receive(report, NOW) == [NoteListener(utterance_id, ListenerReport(100))]
    assert session.receive(report, NOW) == []
    paused = ListenerReport(100, is_playing=False)
    assert session.receive(report, NOW + 1) == [NoteListener(utterance_id, paused)]


@pytest.mark.parametrize("state", [ContextState.CANCELLING, None])
def test_of_a_context_that_is_not_spoken_the_engine_hears_no_report(state: ContextState | None) -> None:
    session = session_in(state)
    if state is None:
        open_context(session)
    assert session.receive(MESSAGES[wire.Playback], NOW) == []


def test_while_a_peer_takes_nothing_the_engine_knows_of_all_its_utterances_also_of_later_ones() -> None:
    session = new_session()
    first = begin_context(session)
    open_context(session, "idle")
    held, plays = ListenerReport(is_playing=False), ListenerReport()
    assert session.reach(False) == [NoteListener(first, held)]
    second = open_context(session, "b")
    session.receive(wire.Text(context="b", text=TEXT), NOW)
    assert session.submitted(second, NOW) == [PushText(second, TEXT), NoteListener(second, held)]
    assert session.reach(True) == [NoteListener(first, plays), NoteListener(second, plays)]


# --- the socket -------------------------------------------------------------------------------------------


def test_greeting_names_voices_modes_and_limits() -> None:
    (ready,) = sent(new_session(contexts=3, text_bytes=4, context_text_bytes=5, messages_per_s=6).greet())
    assert ready == wire.Ready(
        session="s",
        token="",
        model="m",
        voices=("anna", "ben"),
        default_voice="anna",
        modes=("auto", "clause"),
        limits=wire.Limits(
            contexts=3,
            text_bytes=4,
            context_text_bytes=5,
            lead_ms=3000,
            resume_seconds=0,
            messages_per_second=6,
            context_idle_seconds=600,
            context_seconds=14_400,
            pronunciations=256,
        ),
        family="",
        sample_rate=24_000,
        languages=("en",),
        voice_languages={"ben": "zh"},
    )


def test_ping() -> None:
    assert sent(new_session().receive(wire.Ping(t="x"), NOW)) == [wire.Pong(t="x")]


def test_what_can_be_resumed_says_for_how_long() -> None:
    (lasting,) = sent(Session(session_id="s", info=INFO, limits=SessionLimits(resume_s=7), token="t").greet())
    (passing,) = sent(Session(session_id="s", info=INFO, limits=SessionLimits(resume_s=7)).greet())
    assert (lasting.token, lasting.limits.resume_seconds) == ("t", 7)
    assert (passing.token, passing.limits.resume_seconds) == ("", 0)


def test_a_context_counts_for_where_it_was_opened_whoever_has_the_session_now() -> None:
    quotas, here, there = Quotas(), Owner("here"), Owner("there")
    session = Session(session_id="s", info=INFO, quotas=quotas, owner=here)
    begin_context(session, "a")
    open_context(session, "c")
    session.move_to(there)
    begin_context(session, "b")
    session.receive(wire.Text(context="c", text=TEXT), NOW)
    assert [quotas.held(owner, Holding.CONTEXT) for owner in (here, there)] == [2, 1]
    assert [quotas.held(owner, Holding.UTTERANCE) for owner in (here, there)] == [2, 1]
    session.disconnected()
    assert [quotas.held(owner, holding) for owner in (here, there) for holding in Holding] == [0] * 8


@pytest.mark.parametrize(
    ("violation", "context", "is_fatal"),
    [
        (ProtocolViolation(ErrorCode.BAD_MESSAGE, "x"), None, False),
        (ProtocolViolation(ErrorCode.BAD_MESSAGE, "x", context="new", message_type="open"), "new", True),
        (ProtocolViolation(ErrorCode.BAD_MESSAGE, "x", context="a", message_type="open"), "a", False),
        (ProtocolViolation(ErrorCode.BAD_MESSAGE, "x", context="a", message_type="text"), "a", False),
        (ProtocolViolation(ErrorCode.BAD_MESSAGE, "x", context="new", message_type="text"), "new", False),
        (ProtocolViolation(ErrorCode.BAD_MESSAGE, "x", message_type="open"), None, False),
    ],
)
def test_a_violation_ends_nothing_but_a_failed_open(
    violation: ProtocolViolation, context: str | None, is_fatal: bool
) -> None:
    session = session_in(ContextState.OPEN)
    error = error_of(session.violation(violation))
    assert (error.context or None, error.fatal, error.code) == (context, is_fatal, "bad_message")
    assert list(session.contexts) == ["a"]


def test_an_engine_that_hangs_ends_whoever_waits_for_it() -> None:
    session = new_session()
    utterance_id = begin_context(session, "speaks")
    waiting_id = open_context(session, "waits")
    session.receive(wire.Text(context="waits", text=TEXT), NOW)
    open_context(session, "silent")
    first, cancel, second, withdraw = session.engine_hangs("it hangs")
    for action, context in ((first, "speaks"), (second, "waits")):
        error = error_of([action])
        assert (error.code, error.context, error.fatal) == ("engine_failed", context, True)
        assert error.message.startswith("it hangs")
    assert (cancel, withdraw) == (CancelUtterance(utterance_id), Withdraw(waiting_id))
    assert list(session.contexts) == ["silent"]
    assert session.engine_hangs("it hangs") == []
    assert session.engine_event(engine.Cancelled(utterance_id, 0, 0, "", TEXT), NOW) == []


def test_too_many_messages_are_told_and_then_too_much() -> None:
    session, utterance_id = speaking(messages_per_s=7)
    error = error_of(session.over_rate())
    assert (error.code, error.context, error.fatal) == ("rate_limited", UNSET, False)
    assert "7 messages a second" in error.message
    assert session.receive(wire.Text(context="a", text="goes on"), NOW) == [PushText(utterance_id, "goes on")]
    told, cancel, close = session.flooded()
    assert error_of([told]).fatal
    assert cancel == CancelUtterance(utterance_id)
    assert close == Close(CloseCode.POLICY, "rate_limited")


def test_draining_lets_contexts_finish_and_refuses_new_ones() -> None:
    session, utterance_id = speaking()
    assert sent(session.drain(5000)) == [wire.Draining(5000)]
    assert session.drain(5000) == []
    error = error_of(session.receive(wire.Open(context="b"), NOW))
    assert (error.code, error.context, error.fatal) == ("overloaded", "b", True)
    assert isinstance(error.retry_after_ms, int)
    last = session.engine_event(engine.Done(utterance_id, 0, 0, 0), NOW)[-1]
    assert isinstance(last, Close)
    assert last.code is CloseCode.GOING_AWAY


def test_a_drain_does_not_wait_for_contexts_with_nothing_to_say() -> None:
    session = new_session()
    open_context(session, "never spoke")
    speaking, said_all = begin_context(session, "speaks"), begin_context(session, "has said all")
    session.receive(wire.Flush(context="has said all"), NOW)
    session.engine_event(engine.Flushed(said_all, "", 40), NOW)
    actions = session.drain(5000)
    assert sent(actions)[0] == wire.Draining(5000)
    told = [(m.code, m.context, m.fatal) for m in sent(actions)[1:]]
    assert told == [("overloaded", "never spoke", True), ("overloaded", "has said all", True)]
    assert [action for action in actions if isinstance(action, CancelUtterance)] == [CancelUtterance(said_all)]
    assert list(session.contexts) == ["speaks"]
    # Nor for one that comes to its end while the others are waited for.
    session.receive(wire.Flush(context="speaks", id="f"), NOW)
    flushed, error, cancel, close = session.engine_event(engine.Flushed(speaking, "f", 40), NOW)
    assert sent([flushed]) == [wire.Flushed("speaks", "f", 40)]
    assert error_of([error]).code == "overloaded"
    assert cancel == CancelUtterance(speaking)
    assert isinstance(close, Close)


def test_a_drain_waits_for_text_after_a_flush_and_for_flushes() -> None:
    session, utterance_id = speaking()
    session.receive(wire.Flush(context="a", id="1"), NOW)
    session.receive(wire.Text(context="a", text="more"), NOW)
    session.engine_event(engine.Flushed(utterance_id, "1", 40), NOW)
    assert sent(session.drain(5000)) == [wire.Draining(5000)]
    session.receive(wire.Flush(context="a", id="2"), NOW)
    session.receive(wire.Flush(context="a", id="3"), NOW)
    session.engine_event(engine.Flushed(utterance_id, "2", 40), NOW)
    assert list(session.contexts) == ["a"]


def test_a_drain_lets_an_ended_context_finish() -> None:
    session, utterance_id = speaking()
    session.receive(wire.Flush(context="a"), NOW)
    session.receive(wire.End(context="a"), NOW)
    session.engine_event(engine.Flushed(utterance_id, "", 40), NOW)
    assert sent(session.drain(5000)) == [wire.Draining(5000)]
    assert isinstance(session.engine_event(engine.Done(utterance_id, 40, 2, 0), NOW)[-1], Close)


def test_draining_closes_an_idle_socket_at_once() -> None:
    actions = new_session().drain(5000)
    assert isinstance(actions[-1], Close)


@pytest.mark.parametrize(
    ("end", "error_code", "close_code", "cancels"),
    [
        (Session.drain_deadline, "overloaded", CloseCode.GOING_AWAY, True),
        (Session.engine_stopped, "engine_failed", CloseCode.OUR_FAULT, False),
        (Session.slow_consumer, None, CloseCode.POLICY, True),
        (Session.flooded, None, CloseCode.POLICY, True),
        (Session.disconnected, None, None, True),
    ],
)
def test_the_end_of_a_socket_is_the_end_of_its_contexts(
    end: Callable[[Session], list[Action]], error_code: str | None, close_code: CloseCode | None, cancels: bool
) -> None:
    session = new_session()
    running, cancelling = begin_context(session, "a"), begin_context(session, "b")
    session.receive(wire.Cancel(context="b"), NOW)
    actions = end(session)
    errors = [(m.code, m.context, m.fatal) for m in sent(actions) if m.context is not UNSET]
    assert errors == ([(error_code, "a", True), (error_code, "b", True)] if error_code else [])
    assert [a for a in actions if isinstance(a, CancelUtterance)] == ([CancelUtterance(running)] if cancels else [])
    closes = [action for action in actions if isinstance(action, Close)]
    assert [close.code for close in closes] == ([close_code] if close_code else [])
    assert not session.contexts
    # Nothing follows the end of a socket.
    assert session.receive(wire.Open(context="c"), NOW) == []
    assert session.violation(ProtocolViolation(ErrorCode.BAD_MESSAGE, "x")) == []
    assert session.engine_event(engine.Failed(cancelling, "x"), NOW) == []
    ends = (Session.drain_deadline, Session.engine_stopped, Session.slow_consumer, Session.over_rate, Session.flooded)
    assert [f(session) for f in ends] == [[]] * len(ends)
    assert session.drain(1) == session.disconnected() == []
