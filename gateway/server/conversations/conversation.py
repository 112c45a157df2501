"""A Session at work: its actions performed on the engine, its times kept, its output held until somebody takes it.

What carries it, a WebSocket or an HTTP answer, feeds it messages and takes its output. It must not know either.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol, assert_never

from voicegate.engine.interface import EngineError, EngineEvent, EngineInfo, EngineStopped
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.alarm import Alarm
from voicegate.gateway.server.conversations.outgoing import Item, Outgoing
from voicegate.gateway.server.conversations.services import Services
from voicegate.gateway.server.entrance.callers import ANYBODY, Caller
from voicegate.gateway.session.actions import (
    Action,
    CancelUtterance,
    Close,
    EndText,
    FlushText,
    NoteListener,
    PushText,
    Send,
    SendAudio,
    Submit,
    Withdraw,
)
from voicegate.gateway.session.quota import Owner
from voicegate.gateway.session.session import Session
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.dialects.dialect import Reply
from voicegate.protocol.errors import CloseCode, ErrorCode, ProtocolViolation
from voicegate.protocol.messages import ServerMessage, SessionMessage

# Lower -> every hiccup of a network has the engine stop and go; higher -> more is made for a peer that takes none.
_SLOW_AFTER_S: Final = 0.5


Output = ServerMessage | AudioMessage


class Taker(Protocol):
    """Where output goes without a wait, while nothing else waits to go out."""

    @property
    def takes_at_once(self) -> bool: ...

    def take(self, output: Output) -> None:
        """All that comes of one event, while it `takes_at_once` before the first."""


def new_session_id(instance: str | None = None) -> str:
    """A balancer that is shown it knows whose it is, where servers have names (docs/adr/0022)."""
    session_id = secrets.token_hex(8)
    return session_id if instance is None else f"{instance}.{session_id}"


class Conversation:
    """`taker`: None where all output is taken by `next_output`.

    `verdict`: how it ends, whatever is still to be said or taken."""

    def __init__(
        self,
        services: Services,
        *,
        session_id: str,
        info: EngineInfo,
        owner: Owner,
        caller: Caller = ANYBODY,
        token: str = "",
    ) -> None:
        """`caller`: what its client says of itself; `token`: with which it may come back."""
        self._engine = services.engine
        self._dispatcher = services.dispatcher
        self._admission = services.admission
        self._pronunciations = services.pronunciations
        self._meters = services.meters
        self.session_id = session_id
        observers = services.meters.observers(caller.tag)
        if services.trace is not None:
            observers.append(services.trace(caller.trace_parent))
        self._session = Session(
            session_id=session_id,
            info=info,
            limits=services.limits,
            quotas=services.quotas,
            owner=owner,
            token=token,
            observers=observers,
        )
        self._loop = asyncio.get_running_loop()
        self._deadline, self._sending, self._holding_up = Alarm(), Alarm(), Alarm()
        self._is_reachable = True
        self._outgoing = Outgoing()
        self.taker: Taker | None = None
        self.on_backlog: Callable[[int], None] = lambda _num_bytes: None  # told what waits when it has grown
        self.verdict: asyncio.Future[Close] = self._loop.create_future()
        self._is_over = False
        self.owner = owner
        named = {"tag": caller.tag, "key": None if owner.key is None else owner.key.name}
        named = {name: value for name, value in named.items() if value is not None}
        self.log = get_logger(__name__).bind(session=session_id, **named)

    @property
    def num_contexts(self) -> int:
        return len(self._session.contexts)

    @property
    def is_ending(self) -> bool:
        return self._session.is_closed or self.verdict.done()

    @property
    def num_backlog_bytes(self) -> int:
        """Bytes that wait to be taken."""
        return self._outgoing.num_event_bytes

    @property
    def has_answers(self) -> bool:
        return self._outgoing.has_answers

    # --- from the client ----------------------------------------------------------------------------------

    def greet(self) -> None:
        self._perform(self._session.greet(), self._answer)

    def receive(self, message: SessionMessage) -> None:
        if isinstance(message, wire.Open):
            with suppress(EngineStopped):  # the dispatcher will say so
                self._session.learn(self._engine.info, self._pronunciations.dictionary)
        self._perform(self._session.receive(message, self._loop.time()), self._answer)
        self._watch_deadline()
        self._watch_sending()

    def _answer(self, output: Output) -> None:
        """At once where nothing else waits: to wake a waiter in `next_output` costs more than the answer."""
        if self.taker is not None and self._outgoing.is_empty and self.taker.takes_at_once:
            self.taker.take(output)
        else:
            self._outgoing.put(output)

    def violation(self, violation: ProtocolViolation) -> None:
        """It sent what is no message."""
        self._perform(self._session.violation(violation))

    def note_not_followed(self, fields: Sequence[str]) -> None:
        """Notes requests in a vendor's form that this server cannot follow."""
        if fields:
            self.log.info("not followed", fields=", ".join(fields))

    def say(self, answer: Reply | Close) -> None:
        """Sends a message that the session does not know of: after all that waits, and nothing after a Close."""
        self._outgoing.put(answer)

    def hold_up(self, is_held_up: bool) -> None:
        """Tells whether messages wait for the peer: for one that stays so nothing further is made."""
        if is_held_up:
            self._holding_up.set(self._loop.time() + _SLOW_AFTER_S, lambda: self._reach(False))
        else:
            self._holding_up.call_off()
            self._reach(True)

    def _reach(self, is_reachable: bool) -> None:
        if is_reachable is not self._is_reachable:
            self._is_reachable = is_reachable
            self._react(lambda: self._session.reach(is_reachable))

    @property
    def has_room(self) -> bool:
        return self._outgoing.has_room

    async def wait_for_room(self) -> None:
        """Until more of the client may be read: who does not take answers is not listened to either."""
        await self._outgoing.wait_for_room()

    # --- from the server and the dispatcher: they must not suffer from its trouble ----------------------------

    def deliver(self, event: EngineEvent) -> None:
        """Take an engine event; it reaches the session when nothing else waits to go out. Returns at once."""
        if self._is_over:
            return
        if self.taker is not None and self._outgoing.is_empty and self.taker.takes_at_once:
            self._pass_on(event, self.taker)
            return
        self._outgoing.put_event(event)
        if self._outgoing.is_too_much:
            self.give_up()
        else:
            self.on_backlog(self._outgoing.num_event_bytes)

    def _pass_on(self, event: EngineEvent, taker: Taker) -> None:
        """To wake a waiter in `next_output` costs as much as all else that is done for a packet."""
        try:
            self._perform(self._session.engine_event(event, self._loop.time()), taker.take)
            if self._session.is_paced:
                self._watch_sending()
        except Exception:
            self.log.exception("socket failed")
            self._end_with(Close(CloseCode.OUR_FAULT, ""))

    def drain(self, deadline_ms: int) -> None:
        self._react(lambda: self._session.drain(deadline_ms))

    def drain_deadline(self) -> None:
        self._react(self._session.drain_deadline)

    def engine_stopped(self) -> None:
        self._react(self._session.engine_stopped)

    def engine_hangs(self, trouble: str) -> None:
        self._react(lambda: self._session.engine_hangs(trouble))

    def over_rate(self) -> None:
        self.log.warning("too many messages")
        self._react(self._session.over_rate)

    def flooded(self) -> None:
        self._react(self._session.flooded)

    def revoke(self) -> None:
        self.log.warning("the key of an open connection was taken back")
        self._react(self._session.revoked)

    # --- another socket -----------------------------------------------------------------------------------

    def lose_socket(self) -> None:
        """Its client may come back: its speech goes on, and waits, but for what meant that socket."""
        self._outgoing.drop_momentary()
        self.hold_up(False)

    def move_to(self, owner: Owner) -> None:
        """The client has come back, maybe from elsewhere, or its key may hold other things now."""
        self.owner = owner
        self._session.move_to(owner)

    # --- ends ---------------------------------------------------------------------------------------------

    def give_up(self) -> None:
        """Nothing reaches the peer any more: its contexts end now, and what waits for it is dropped."""
        if self.verdict.done():
            return
        self.log.warning("slow consumer", waiting_bytes=self.num_backlog_bytes)
        self._outgoing.drop_events()
        self._react(self._session.slow_consumer)
        self._end_with(Close(CloseCode.POLICY, ErrorCode.SLOW_CONSUMER.value))

    def break_off(self) -> None:
        """After a fault of ours: what still runs is cancelled, what waits is not said."""
        self._outgoing.drop_answers()
        self._perform(self._session.disconnected())
        self._end_with(Close(CloseCode.OUR_FAULT, ""))

    def close(self) -> None:
        """No one is there any more: what still runs is cancelled. May be called again."""
        self._is_over = True
        self._outgoing.drop_events()
        self._perform(self._session.disconnected())
        for alarm in (self._deadline, self._sending, self._holding_up):
            alarm.call_off()
        self._end_with(Close(CloseCode.DONE, ""))

    def _end_with(self, close: Close) -> None:
        if not self.verdict.done():
            self.verdict.set_result(close)

    # --- to the client ------------------------------------------------------------------------------------

    async def next_output(self) -> Item:
        while (item := self.take_output()) is None:
            await self._outgoing.wait_for_news()
        return item

    def take_output(self) -> Item | None:
        """None: there is nothing to say now."""
        if self._outgoing.is_empty and not self._session.is_paced:
            return None
        self._outgoing.is_being_taken = True
        try:
            while (item := self._outgoing.take()) is None:
                if (event := self._outgoing.take_event()) is not None:
                    self._perform(self._session.engine_event(event, self._loop.time()))
                elif (due_s := self._session.next_send_s) is not None and due_s <= self._loop.time():
                    self._perform(self._session.on_send_due(self._loop.time()))
                else:
                    self._watch_sending()
                    return None
        finally:
            self._outgoing.is_being_taken = False
        return item

    # --- times --------------------------------------------------------------------------------------------

    def _watch_sending(self) -> None:
        """For contexts whose audio leaves in time with their listeners."""
        self._sending.set(self._session.next_send_s, self._outgoing.look_again)

    def _watch_deadline(self) -> None:
        if not self._deadline.is_set:
            self._deadline.set(self._session.next_deadline_s(self._loop.time()), self._meet_deadline)

    def _meet_deadline(self) -> None:
        self._react(lambda: self._session.on_deadline(self._loop.time()))
        self._watch_deadline()

    # --- performing ---------------------------------------------------------------------------------------

    def _react(self, step: Callable[[], Sequence[Action]]) -> None:
        try:
            self._perform(step())
        except Exception:
            self.log.exception("socket failed")
            self._end_with(Close(CloseCode.OUR_FAULT, ""))

    def _perform(self, actions: Sequence[Action], put: Callable[[Output], None] | None = None) -> None:
        """`put` None: what is to be said waits to be taken."""
        put = put or self._outgoing.put
        for action in actions:
            match action:
                case SendAudio(message=audio):
                    put(audio)
                case Send(message=message):
                    self._note(message)
                    put(message)
                case Submit():
                    self._submit(action)
                case Withdraw(utterance_id=utterance_id):
                    self._admission.withdraw(utterance_id)
                case PushText(utterance_id=utterance_id, text=text):
                    self._engine.push_text(utterance_id, text)
                case FlushText(utterance_id=utterance_id, flush_id=flush_id):
                    self._engine.flush_text(utterance_id, flush_id)
                case EndText(utterance_id=utterance_id):
                    self._engine.end_text(utterance_id)
                case NoteListener(utterance_id=utterance_id, report=report):
                    self._engine.note_listener(utterance_id, report)
                case CancelUtterance(utterance_id=utterance_id, played_ms=played_ms):
                    self._engine.cancel(utterance_id, played_ms)
                case Close():
                    self._outgoing.put(action)
                case _:
                    assert_never(action)

    def _submit(self, submit: Submit) -> None:
        utterance_id = submit.request.utterance_id

        def answer(error: EngineError | None) -> None:
            if error is None:
                self._dispatcher.claim(utterance_id, self.deliver)
                self._react(lambda: self._session.submitted(utterance_id, self._loop.time()))
            else:
                self._react(lambda: self._session.refused(utterance_id, error))

        self._admission.submit(submit.request, answer, is_return=submit.is_return)

    def _note(self, message: ServerMessage) -> None:
        if isinstance(message, wire.Error):
            self._meters.note_error(message.code)
        self._log_end(message)

    def _log_end(self, message: ServerMessage) -> None:
        match message:
            case wire.Done(context=context, audio_ms=audio_ms, timing=timing):
                self.log.info(
                    "context done",
                    context=context,
                    audio_ms=audio_ms,
                    characters=message.characters,
                    ttfb_ms=timing.ttfb_ms,
                    truncated=message.truncated is True,
                )
            case wire.Cancelled(context=context, audio_ms=audio_ms):
                self.log.info("context cancelled", context=context, audio_ms=audio_ms)
            case wire.Error(code=code, context=str(context)) if message.fatal:
                level = "warning" if code == ErrorCode.ENGINE_FAILED.value else "info"
                getattr(self.log, level)("context refused or failed", context=context, code=code)
            case _:
                pass
