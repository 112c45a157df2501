"""The state machine of one socket: which contexts it has, who may say what, what to do next.

Sans-I/O: it takes messages and events, and returns actions; time is an argument. It must not know sockets, JSON,
the event loop, or how the engine works. `gateway/session/context.py` holds the table of legal moves.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, assert_never

from msgspec import UNSET

from voicegate.engine import interface as engine
from voicegate.engine.dictionary import Dictionary
from voicegate.engine.interface import EngineError, EngineEvent, EngineInfo, UtteranceId
from voicegate.gateway.session.actions import Action, CancelUtterance, Close, Send, Withdraw
from voicegate.gateway.session.context import ACCEPTS, Context, ContextMessage, ContextState
from voicegate.gateway.session.listener import Underruns
from voicegate.gateway.session.observer import DISCONNECTED, Observer, outcome_of
from voicegate.gateway.session.opening import Refusal, SessionLimits, build_request, find_refusal, ready_of, refusal_of
from voicegate.gateway.session.pacing import SendPace
from voicegate.gateway.session.quota import NOBODY, Holding, Owner, Quotas
from voicegate.gateway.session.refusals import (
    GOING_AWAY,
    error_of,
    excess_of,
    expired,
    find_excess,
    flooded,
    going_away,
    illegal_in_state,
    over_rate,
    refused,
    revoked,
    unheard,
)
from voicegate.protocol import messages as wire
from voicegate.protocol.errors import CloseCode, ErrorCode, ProtocolViolation
from voicegate.protocol.messages import SessionMessage

NUM_HANDLES: Final = 2**16


class Session:
    def __init__(
        self,
        *,
        session_id: str,
        info: EngineInfo,
        limits: SessionLimits | None = None,
        quotas: Quotas | None = None,
        owner: Owner = NOBODY,
        token: str = "",
        observers: Sequence[Observer] = (),
    ) -> None:
        """`token`: with which the session can be resumed; empty: it cannot."""
        self.session_id = session_id
        self._token = token
        self._info = info
        self._dictionary: Dictionary | None = None
        self._limits = limits or SessionLimits()
        self._quotas = quotas or Quotas()
        self._owner = owner
        self._observers = observers
        self._contexts: dict[str, Context] = {}
        self._by_utterance: dict[UtteranceId, Context] = {}
        self._underruns = Underruns(2 * self._limits.contexts)
        self._paced: dict[str, Context] = {}  # those whose audio leaves in time with their listeners
        self._num_incarnations = 0
        self._next_handle = 0
        self._is_reachable = True
        self._is_draining = False
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Nothing more comes of it but what was said before."""
        return self._is_closed

    @property
    def contexts(self) -> Mapping[str, Context]:
        """The live ones, by id."""
        return MappingProxyType(self._contexts)

    def move_to(self, owner: Owner) -> None:
        """Its client is somewhere else, or may hold other things. What it opened before counts for where that was."""
        self._owner = owner

    def learn(self, info: EngineInfo, dictionary: Dictionary | None = None) -> None:
        """Learns the engine's present state: voices come and go. The greeting may be older.

        `dictionary`: the server's, for what is opened from here on.
        """
        self._info, self._dictionary = info, dictionary

    # --- from the socket ----------------------------------------------------------------------------------

    def greet(self) -> list[Action]:
        return [Send(ready_of(self.session_id, self._token, self._info, self._limits))]

    def receive(self, message: SessionMessage, now_s: float) -> list[Action]:
        if self._is_closed:
            return []
        match message:
            case wire.Open():
                return self._open(message, now_s)
            case wire.Text() | wire.Flush() | wire.End() | wire.Cancel() | wire.Playback():
                return self._to_context(message, now_s)
            case wire.Ping(t=t):
                return [Send(wire.Pong(t=t))]
            case _:
                assert_never(message)

    def violation(self, error: ProtocolViolation) -> list[Action]:
        """The peer sent something that is no message. Ends nothing, but an `open` that failed so is over."""
        if self._is_closed:
            return []
        is_refused_open = error.message_type == "open" and error.context is not None
        is_fatal = is_refused_open and error.context not in self._contexts
        return [error_of(error.code, error.message, error.context, fatal=is_fatal)]

    def disconnected(self) -> list[Action]:
        """The socket is gone: no one waits for what still runs."""
        return self._cancel_all()

    # --- from the shell -----------------------------------------------------------------------------------

    def submitted(self, utterance_id: UtteranceId, now_s: float) -> list[Action]:
        context = self._by_utterance[utterance_id]
        if context.is_returning:
            return context.go_on()
        actions = [*context.begin(now_s), *context.reach(self._is_reachable)]
        for observer in self._observers:
            observer.began(context)
        return actions

    def refused(self, utterance_id: UtteranceId, error: EngineError) -> list[Action]:
        return self._refuse(self._by_utterance[utterance_id], refusal_of(error))

    def _refuse(self, context: Context, refusal: Refusal) -> list[Action]:
        """It has something to say, for the first time or again, and there is no room for it."""
        if not context.has_utterance:
            return self._end(context, refused(refusal, context.context_id))
        error = refused(unheard(refusal), context.context_id)
        return self._end(context, error, CancelUtterance(context.utterance_id))

    def next_deadline_s(self, now_s: float) -> float | None:
        """When `on_deadline` is due at the latest; a context that is opened from now on has none before that."""
        if not self._contexts:
            return None
        first_s = min(context.deadline_s(self._limits) for context in self._contexts.values())
        return min(first_s, now_s + self._limits.context_idle_s)

    def on_deadline(self, now_s: float) -> list[Action]:
        """Contexts have lived or been idle for too long."""
        expired = [c for c in self._contexts.values() if c.deadline_s(self._limits) <= now_s]
        return [action for context in expired for action in self._expire(context, now_s)]

    def drain(self, deadline_ms: int) -> list[Action]:
        """No contexts from here on but those with something to say; the socket closes when the last one has ended."""
        if self._is_closed or self._is_draining:
            return []
        self._is_draining = True
        silent = [context for context in self._contexts.values() if not context.has_something_to_say]
        ends = [action for context in silent for action in self._send_away(context)]
        return [Send(wire.Draining(deadline_ms=deadline_ms)), *(ends or self._close_if_drained())]

    def drain_deadline(self) -> list[Action]:
        """Contexts that still run have had their time."""
        if self._is_closed:
            return []
        errors = [going_away(context_id) for context_id in self._contexts]
        return [*errors, *self._cancel_all(ErrorCode.OVERLOADED), Close(CloseCode.GOING_AWAY, GOING_AWAY)]

    def engine_stopped(self) -> list[Action]:
        if self._is_closed:
            return []
        errors = [
            error_of(ErrorCode.ENGINE_FAILED, "the engine has stopped", context_id, fatal=True)
            for context_id in self._contexts
        ]
        # The engine is not there to be told of a cancel.
        withdrawals = [action for action in self._cancel_all(ErrorCode.ENGINE_FAILED) if isinstance(action, Withdraw)]
        return [*errors, *withdrawals, Close(CloseCode.OUR_FAULT, "")]

    def engine_hangs(self, trouble: str) -> list[Action]:
        """Ends contexts that wait for a hanging engine; those with nothing to say, or all of it made, stay."""
        contexts = self._contexts.values()
        asked = [context for context in contexts if context.asked_s is not None and not context.is_at_rest]
        waiting = [context for context in asked if context.pace is None or context.pace.end is None]
        text = f"{trouble}; open the context again, best on another server"
        actions: list[Action] = []
        for context in waiting:
            error = error_of(ErrorCode.ENGINE_FAILED, text, context.context_id, fatal=True)
            actions += self._end(context, error, *context.cancel())
        return actions

    def slow_consumer(self) -> list[Action]:
        """The peer read nothing for too long; no message would reach it either."""
        return self._cut_off(ErrorCode.SLOW_CONSUMER)

    def over_rate(self) -> list[Action]:
        """The peer sends more than it may, and is read more slowly from here on."""
        if self._is_closed:
            return []
        return [over_rate(self._limits)]

    def flooded(self) -> list[Action]:
        """It went on for longer than anybody has patience."""
        return self._cut_off(ErrorCode.RATE_LIMITED, flooded(self._limits))

    def revoked(self) -> list[Action]:
        """The key that it came with is none any more."""
        return self._cut_off(ErrorCode.UNAUTHORIZED, revoked())

    def _cut_off(self, reason: ErrorCode, *last_words: Send) -> list[Action]:
        if self._is_closed:
            return []
        return [*last_words, *self._cancel_all(reason), Close(CloseCode.POLICY, reason.value)]

    def reach(self, is_reachable: bool) -> list[Action]:
        """False: what is sent has waited for the peer for a while, so that more of it would only wait too."""
        self._is_reachable = is_reachable
        return [action for context in self._contexts.values() for action in context.reach(is_reachable)]

    @property
    def is_paced(self) -> bool:
        """Whether `next_send_s` may be anything."""
        return bool(self._paced)

    @property
    def next_send_s(self) -> float | None:
        """When `on_send_due` is."""
        if not self._paced:
            return None
        paces = (context.pace for context in self._paced.values())
        return min((pace.next_due_s for pace in paces if pace is not None and pace.waiting), default=None)

    def on_send_due(self, now_s: float) -> list[Action]:
        """Listeners have room for more of their audio."""
        paced = [(context, context.pace) for context in self._paced.values() if context.pace is not None]
        return [action for context, pace in paced for action in self._send_due(context, pace, now_s)]

    # --- from the engine ----------------------------------------------------------------------------------

    def engine_event(self, event: EngineEvent, now_s: float) -> list[Action]:
        """An event of an utterance that no one waits for any more changes nothing."""
        context = self._by_utterance.get(event.utterance_id)
        if context is None:
            return []
        if context.pace is None or context.state is ContextState.CANCELLING:
            return self._handle(context, event, now_s)
        context.pace.waiting.append(event)
        return self._send_due(context, context.pace, now_s)

    def _send_due(self, context: Context, pace: SendPace, now_s: float) -> list[Action]:
        actions: list[Action] = []
        # An event may end the context, on a server that drains.
        while context.utterance_id in self._by_utterance and (event := pace.take_due(now_s)) is not None:
            actions += self._handle(context, event, now_s)
        return actions

    def _handle(self, context: Context, event: EngineEvent, now_s: float) -> list[Action]:
        match event:
            case engine.AudioReady() | engine.Alignment() | engine.Flushed():
                if context.state is ContextState.CANCELLING:
                    return []  # the client hears only how it ended
                was_silent = context.first_audio_s is None
                actions = context.progress(event, now_s)
                if was_silent and context.first_audio_s is not None:
                    for observer in self._observers:
                        observer.sounded(context)
                return [*actions, *self._send_away_if_silent(context)]
            case engine.AtRest(num_chars=num_chars):
                if not context.rest(num_chars):
                    return []
                self._give_place_back(context)
                return self._send_away_if_silent(context)
            case engine.Done() | engine.Cancelled() | engine.Failed():
                return self._engine_ended(context, event)
            case _:
                assert_never(event)

    def _engine_ended(self, context: Context, event: engine.EndEvent) -> list[Action]:
        return [*context.withdraw(), *self._tell_end(context, event)]

    def _tell_end(self, context: Context, event: engine.EndEvent) -> list[Action]:
        match event:
            case engine.Done(audio_ms=audio_ms, num_packets=num_packets):
                # The engine may have finished just before it heard of a cancel: then there is no last message.
                is_cancelling = context.state is ContextState.CANCELLING
                last = [] if is_cancelling else [context.audio((), event.end_pts_48k, is_last=True)]
                truncated = True if event.is_truncated else UNSET
                context.measured = event.timing
                timing = context.timing(event.timing)
                done = wire.Done(context.context_id, audio_ms, num_packets, timing, truncated, context.num_characters)
                return [*last, *self._end(context, Send(done))]
            case engine.Cancelled(spoken_text=spoken, remaining_text=remaining):
                return self._end(context, Send(wire.Cancelled(context.context_id, event.audio_ms, spoken, remaining)))
            case engine.Failed(message=message, is_of_text=is_of_text):
                code = ErrorCode.UNSUPPORTED if is_of_text else ErrorCode.ENGINE_FAILED
                return self._end(context, error_of(code, message, context.context_id, fatal=True))
            case _:
                assert_never(event)

    # --- contexts -----------------------------------------------------------------------------------------

    def _open(self, message: wire.Open, now_s: float) -> list[Action]:
        context_id = message.context
        if context_id in self._contexts:
            return [error_of(ErrorCode.CONTEXT_EXISTS, "this context is open already", context_id)]
        if self._is_draining:
            return [going_away(context_id)]
        if len(self._contexts) >= self._limits.contexts:
            text = f"{self._limits.contexts} contexts are open on this socket, which is its limit"
            return [error_of(ErrorCode.TOO_MANY_CONTEXTS, text, context_id, fatal=True)]
        refusal = find_refusal(message, self._info) or self._take_quota(self._owner, Holding.CONTEXT)
        if refusal is not None:
            return [refused(refusal, context_id)]
        utterance_id = UtteranceId(f"{self.session_id}-{self._num_incarnations}")
        self._num_incarnations += 1
        request = build_request(message, self._info, utterance_id, self._dictionary)
        burst_ms = message.pace.burst_ms
        context = Context(
            context_id,
            self._take_handle(),
            message.format,
            request,
            self._owner,
            opened_s=now_s,
            latest_s=now_s,
            pace=None if burst_ms is None else SendPace(burst_ms, message.format.frame_ms),
        )
        self._contexts[context_id] = self._by_utterance[utterance_id] = context
        self._underruns.opened(context_id)
        if context.pace is not None:
            self._paced[context_id] = context
        return [Send(context.opened(self._info))]

    def _take_quota(self, owner: Owner, holding: Holding) -> Refusal | None:
        excess = self._quotas.take(owner, holding)
        return None if excess is None else excess_of(excess)

    def _take_handle(self) -> int:
        """The one unused for longest, so that late audio of an ended context is not taken for another's."""
        live = {context.handle for context in self._contexts.values()}
        while self._next_handle in live:
            self._next_handle = (self._next_handle + 1) % NUM_HANDLES
        handle, self._next_handle = self._next_handle, (self._next_handle + 1) % NUM_HANDLES
        return handle

    def _to_context(self, message: ContextMessage, now_s: float) -> list[Action]:
        context = self._contexts.get(message.context)
        if isinstance(message, wire.Playback):
            more = self._underruns.reported(message.context, message.underruns)
            # A player runs out of audio at a rest, too: there is no more to be heard. A gap before that is one.
            is_rest = context is not None and context.is_at_rest and context.listener.has_played(now_s)
            for observer in () if is_rest else self._observers:
                observer.underruns(more)
        if context is None:
            # A player reports until it has played everything, so its last reports come after `done`.
            is_report = isinstance(message, wire.Playback)
            return (
                [] if is_report else [error_of(ErrorCode.UNKNOWN_CONTEXT, "no such context is open", message.context)]
            )
        if type(message) not in ACCEPTS[context.state]:
            return [illegal_in_state(message, context.state)]
        excess = find_excess(context, message, self._limits)
        if excess is not None:
            return [excess]
        actions = context.take(message, now_s)
        if context.wants_place:
            if (refusal := self._take_quota(context.owner, Holding.UTTERANCE)) is not None:
                return self._refuse(context, refusal)
            context.holds_place = True
        if context.state is ContextState.CANCELLING and context.pace and (end := context.pace.take_end()) is not None:
            return self._engine_ended(context, end)  # the engine has no other to send
        return self._end(context, *actions) if context.is_over else actions

    # --- ends ---------------------------------------------------------------------------------------------

    def _end(self, context: Context, *last_words: Action) -> list[Action]:
        self._forget(context, outcome_of(last_words))
        return [*last_words, *self._close_if_drained()]

    def _forget(self, context: Context, outcome: str) -> None:
        del self._contexts[context.context_id]
        del self._by_utterance[context.utterance_id]
        self._paced.pop(context.context_id, None)
        self._quotas.give_back(context.owner, Holding.CONTEXT)
        self._give_place_back(context)
        for observer in self._observers:
            observer.ended(context, outcome)

    def _give_place_back(self, context: Context) -> None:
        if context.holds_place:
            context.holds_place = False
            self._quotas.give_back(context.owner, Holding.UTTERANCE)

    def _send_away_if_silent(self, context: Context) -> list[Action]:
        is_over = self._is_draining and not context.has_something_to_say
        return self._send_away(context) if is_over else []

    def _send_away(self, context: Context) -> list[Action]:
        """From a server that drains: the context has nothing to say here, and may have elsewhere."""
        return self._end(context, going_away(context.context_id), *context.cancel())

    def _expire(self, context: Context, now_s: float) -> list[Action]:
        return self._end(context, expired(context, self._limits, now_s), *context.cancel())

    def _close_if_drained(self) -> list[Action]:
        if not self._is_draining or self._contexts:
            return []
        self._is_closed = True
        return [Close(CloseCode.GOING_AWAY, GOING_AWAY)]

    def _cancel_all(self, reason: ErrorCode | None = None) -> list[Action]:
        """None: no one is there any more."""
        self._is_closed = True
        contexts = list(self._contexts.values())
        for context in contexts:
            self._forget(context, DISCONNECTED if reason is None else reason.value)
        return [action for context in contexts for action in context.cancel()]
