"""Sessions to test with: their engine, and a context brought into a given state."""

from collections.abc import Sequence
from typing import Any

from voicegate.engine.interface import EngineInfo, SpeakingMode, UtteranceId, VoiceInfo
from voicegate.gateway.session.actions import Action, PushText, Send, SendAudio, Submit
from voicegate.gateway.session.context import ContextState
from voicegate.gateway.session.observer import Observer
from voicegate.gateway.session.opening import SessionLimits
from voicegate.gateway.session.session import Session
from voicegate.protocol import messages as wire

INFO = EngineInfo(
    model="m",
    voices=(VoiceInfo("anna", "first"), VoiceInfo("ben", "second", "zh")),
    default_voice="anna",
    modes=(SpeakingMode.AUTO, SpeakingMode.CLAUSE),
    pre_skip_48k=312,
    max_utterances=8,
    max_lead_ms=3000,
)
NOW = 100.0
TEXT = "hi "

# One of each kind that names a context.
MESSAGES: dict[type, Any] = {
    wire.Open: wire.Open(context="a"),
    wire.Text: wire.Text(context="a", text="hi "),
    wire.Flush: wire.Flush(context="a", id="f"),
    wire.End: wire.End(context="a"),
    wire.Cancel: wire.Cancel(context="a"),
    wire.Playback: wire.Playback(context="a", played_ms=10),
}


def new_session(*, observers: Sequence[Observer] = (), **limits: Any) -> Session:
    return Session(session_id="s", info=INFO, limits=SessionLimits(**limits), observers=observers)


def open_context(session: Session, context: str = "a", **fields: Any) -> UtteranceId:
    """Nothing was said yet, so no engine knows of it."""
    (opened,) = sent(session.receive(wire.Open(context=context, **fields), NOW))
    assert isinstance(opened, wire.Opened)
    return session.contexts[context].utterance_id


def begin_context(session: Session, context: str = "a", **fields: Any) -> UtteranceId:
    """It has said `TEXT`, and the engine has taken it up."""
    utterance_id = open_context(session, context, **fields)
    (submit,) = session.receive(wire.Text(context=context, text=TEXT), NOW)
    assert isinstance(submit, Submit)
    assert session.submitted(utterance_id, NOW) == [PushText(utterance_id, TEXT)]
    return utterance_id


def opened(**limits: Any) -> tuple[Session, UtteranceId]:
    """A session whose context `a` has said nothing yet."""
    session = new_session(**limits)
    return session, open_context(session)


def speaking(*, pace: wire.Pace | None = None, **limits: Any) -> tuple[Session, UtteranceId]:
    """A session whose context `a` speaks."""
    session = new_session(**limits)
    return session, begin_context(session, pace=pace or wire.Pace())


def session_in(state: ContextState | None) -> Session:
    """A session whose context `a` is in this state, and speaks."""
    if state is None:
        return new_session()
    session, _ = speaking()
    if state is ContextState.DRAINING:
        session.receive(wire.End(context="a"), NOW)
    if state is ContextState.CANCELLING:
        session.receive(wire.Cancel(context="a"), NOW)
    return session


def error_of(actions: list[Action]) -> wire.Error:
    assert len(actions) == 1
    assert isinstance(actions[0], Send)
    assert isinstance(actions[0].message, wire.Error)
    return actions[0].message


def sent(actions: list[Action]) -> list[Any]:
    return [action.message for action in actions if isinstance(action, Send | SendAudio)]
