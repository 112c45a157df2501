"""The state machine of one socket: its contexts, who may say what, what to do next.

Sans-I/O: it takes messages and events, and returns actions; time is an argument. It must not know sockets, JSON,
the event loop, or how the engine works. docs/protocol.md is normative; a test holds its state table against ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, assert_never

from engine import interface as engine
from engine.interface import EngineError, EngineEvent, EngineInfo, UtteranceId, UtteranceRequest
from gateway.opening import SessionLimits, build_request, effective_format, find_refusal
from protocol import messages as wire
from protocol.audio_message import AudioMessage
from protocol.errors import CloseCode, ErrorCode, ProtocolViolation
from protocol.messages import ClientMessage, ServerMessage

NUM_HANDLES: Final = 2**16
# Long enough for a client to find another server, short enough to try this one again after a restart.
DRAIN_RETRY_AFTER_MS: Final = 1_000


class ContextState(Enum):
    OPENING = "opening"  # submitted, and the engine has not said yes or no
    OPEN = "open"
    DRAINING = "draining"  # the text has ended, audio goes on
    CANCELLING = "cancelling"  # no audio any more; the engine's end event is on its way


# Every legal move: (state, message) -> state. What is not here changes nothing. `None`: no such context.
ACCEPTS: Final[Mapping[ContextState | None, Mapping[type[ClientMessage], ContextState]]] = MappingProxyType(
    {
        None: {wire.Open: ContextState.OPENING},
        ContextState.OPENING: {},
        ContextState.OPEN: {
            wire.Text: ContextState.OPEN,
            wire.Flush: ContextState.OPEN,
            wire.End: ContextState.DRAINING,
            wire.Cancel: ContextState.CANCELLING,
            wire.Playback: ContextState.OPEN,
        },
        ContextState.DRAINING: {
            wire.Cancel: ContextState.CANCELLING,
            wire.Playback: ContextState.DRAINING,
        },
        ContextState.CANCELLING: {
            wire.Cancel: ContextState.CANCELLING,
            wire.Playback: ContextState.CANCELLING,
        },
    }
)


# --- actions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    message: ServerMessage


@dataclass(frozen=True, slots=True)
class SendAudio:
    message: AudioMessage


@dataclass(frozen=True, slots=True)
class Submit:
    """To be answered at once with `submitted` or `refused`."""

    request: UtteranceRequest


@dataclass(frozen=True, slots=True)
class PushText:
    utterance_id: UtteranceId
    text: str


@dataclass(frozen=True, slots=True)
class FlushText:
    utterance_id: UtteranceId
    flush_id: str


@dataclass(frozen=True, slots=True)
class EndText:
    utterance_id: UtteranceId


@dataclass(frozen=True, slots=True)
class CancelUtterance:
    utterance_id: UtteranceId
    played_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Close:
    """The last action of a session."""

    code: CloseCode
    reason: str


Action = Send | SendAudio | Submit | PushText | FlushText | EndText | CancelUtterance | Close
ContextMessage = wire.Text | wire.Flush | wire.End | wire.Cancel | wire.Playback


@dataclass(slots=True)
class Context:
    """One incarnation of a context id; it lives exactly as long as its engine utterance is awaited."""

    context_id: str
    utterance_id: UtteranceId
    handle: int
    opening: wire.Open
    state: ContextState = ContextState.OPENING
    next_sequence: int = 0
    num_text_bytes: int = 0
    num_unanswered_flushes: int = 0
    first_text_s: float | None = None
    first_audio_s: float | None = None
    playback: wire.Playback | None = None  # last report of the client's player

    @property
    def ttfb_ms(self) -> float | None:
        if self.first_text_s is None or self.first_audio_s is None:
            return None
        return round((self.first_audio_s - self.first_text_s) * 1000, 3)


class Session:
    def __init__(self, *, session_id: str, info: EngineInfo, limits: SessionLimits | None = None) -> None:
        self.session_id = session_id
        self._info = info
        self._limits = limits or SessionLimits()
        self._contexts: dict[str, Context] = {}
        self._by_utterance: dict[UtteranceId, Context] = {}
        self._num_incarnations = 0
        self._next_handle = 0
        self._is_draining = False
        self._is_closed = False

    @property
    def contexts(self) -> Mapping[str, Context]:
        """The live ones, by id."""
        return MappingProxyType(self._contexts)

    # --- from the socket ----------------------------------------------------------------------------------

    def greet(self) -> list[Action]:
        limits = wire.Limits(
            contexts=self._limits.contexts,
            text_bytes=self._limits.text_bytes,
            context_text_bytes=self._limits.context_text_bytes,
            lead_ms=self._info.max_lead_ms,
            resume_seconds=0,
        )
        ready = wire.Ready(
            session=self.session_id,
            token="",
            model=self._info.model,
            voices=tuple(voice.name for voice in self._info.voices),
            default_voice=self._info.default_voice,
            modes=tuple(mode.value for mode in self._info.modes),
            limits=limits,
        )
        return [Send(ready)]

    def receive(self, message: ClientMessage, now_s: float) -> list[Action]:
        if self._is_closed:
            return []
        match message:
            case wire.Open():
                return self._open(message)
            case wire.Text() | wire.Flush() | wire.End() | wire.Cancel() | wire.Playback():
                return self._to_context(message, now_s)
            case wire.Ping(t=t):
                return [Send(wire.Pong(t=t))]
            case wire.Resume():
                return [_error(ErrorCode.UNSUPPORTED, "this server does not resume sessions; open the contexts again")]
            case _:
                assert_never(message)

    def violation(self, error: ProtocolViolation) -> list[Action]:
        """The peer sent something that is no message. Ends nothing, but an `open` that failed so is over."""
        if self._is_closed:
            return []
        is_failed_open = error.message_type == "open" and error.context not in self._contexts
        return [_error(error.code, error.message, error.context, fatal=is_failed_open and error.context is not None)]

    def disconnected(self) -> list[Action]:
        """The socket is gone: nobody waits for what still runs."""
        return self._cancel_all()

    # --- from the shell -----------------------------------------------------------------------------------

    def submitted(self, utterance_id: UtteranceId) -> list[Action]:
        context = self._by_utterance[utterance_id]
        context.state = ContextState.OPEN
        opening = context.opening
        opened = wire.Opened(
            context=context.context_id,
            handle=context.handle,
            voice=self._info.default_voice if opening.voice is None else opening.voice,
            format=effective_format(opening.format),
            sample_rate=engine_sample_rate_hz(),
            pre_skip=self._info.pre_skip_48k if opening.format.codec == "opus" else 0,
        )
        return [Send(opened)]

    def refused(self, utterance_id: UtteranceId, error: EngineError) -> list[Action]:
        context = self._by_utterance[utterance_id]
        code, retry_after_ms = _refusal_code(error)
        return self._end(context, _error(code, str(error), context.context_id, True, retry_after_ms))

    def drain(self, deadline_ms: int) -> list[Action]:
        """No new contexts from here on; the socket closes when the last one has ended."""
        if self._is_closed or self._is_draining:
            return []
        self._is_draining = True
        return [Send(wire.Draining(deadline_ms=deadline_ms)), *self._close_if_drained()]

    def drain_deadline(self) -> list[Action]:
        """Contexts that still run have had their time."""
        return self._close_with(ErrorCode.OVERLOADED, "the server went away before this was spoken")

    def engine_stopped(self) -> list[Action]:
        return self._close_with(ErrorCode.ENGINE_FAILED, "the engine has stopped")

    def slow_consumer(self) -> list[Action]:
        """The peer read nothing for too long; no message would reach it either."""
        if self._is_closed:
            return []
        return [*self._cancel_all(), Close(CloseCode.POLICY, ErrorCode.SLOW_CONSUMER.value)]

    # --- from the engine ----------------------------------------------------------------------------------

    def engine_event(self, event: EngineEvent, now_s: float) -> list[Action]:
        """An event of an utterance that nobody waits for any more changes nothing."""
        context = self._by_utterance.get(event.utterance_id)
        if context is None:
            return []
        match event:
            case engine.AudioReady() | engine.Alignment() | engine.Flushed():
                # After `cancel` the client hears only how the context ended.
                return [] if context.state is ContextState.CANCELLING else [_progress(context, event, now_s)]
            case engine.Done() | engine.Cancelled() | engine.Failed():
                return self._engine_ended(context, event)
            case _:
                assert_never(event)

    def _engine_ended(self, context: Context, event: engine.EndEvent) -> list[Action]:
        match event:
            case engine.Done():
                # The engine may have finished just before it heard of a cancel: then there is no last message.
                is_cancelled = context.state is ContextState.CANCELLING
                last = [] if is_cancelled else [_audio(context, (), event.end_pts_48k, is_last=True)]
                timing = wire.Timing(
                    ttfb_ms=context.ttfb_ms,
                    queue_ms=event.timing.queue_ms,
                    llm_first_token_ms=event.timing.llm_first_token_ms,
                    first_chunk_ms=event.timing.first_chunk_ms,
                    first_packet_ms=event.timing.first_packet_ms,
                )
                done = wire.Done(context.context_id, event.audio_ms, event.num_packets, timing)
                return [*last, *self._end(context, Send(done))]
            case engine.Cancelled():
                cancelled = wire.Cancelled(
                    context.context_id, event.audio_ms, event.spoken_text, event.remaining_text
                )
                return self._end(context, Send(cancelled))
            case engine.Failed():
                return self._end(context, _error(ErrorCode.ENGINE_FAILED, event.message, context.context_id, True))
            case _:
                assert_never(event)

    # --- contexts -----------------------------------------------------------------------------------------

    def _open(self, message: wire.Open) -> list[Action]:
        context_id = message.context
        if context_id in self._contexts:
            return [_error(ErrorCode.CONTEXT_EXISTS, "this context is open already", context_id)]
        if self._is_draining:
            text = "this server is going away; open the context on another connection"
            return [_error(ErrorCode.OVERLOADED, text, context_id, True, DRAIN_RETRY_AFTER_MS)]
        if len(self._contexts) >= self._limits.contexts:
            text = f"{self._limits.contexts} contexts are open on this socket, which is its limit"
            return [_error(ErrorCode.TOO_MANY_CONTEXTS, text, context_id, True)]
        if (refusal := find_refusal(message, self._info, self._limits)) is not None:
            return [_error(refusal.code, refusal.message, context_id, True)]
        utterance_id = UtteranceId(f"{self.session_id}-{self._num_incarnations}")
        self._num_incarnations += 1
        context = Context(context_id, utterance_id, self._take_handle(), message)
        self._contexts[context_id] = self._by_utterance[utterance_id] = context
        return [Submit(build_request(message, self._info, utterance_id))]

    def _take_handle(self) -> int:
        """The least recently used one, so that audio of a context that has just ended is not taken for another's."""
        live = {context.handle for context in self._contexts.values()}
        while self._next_handle in live:
            self._next_handle = (self._next_handle + 1) % NUM_HANDLES
        handle, self._next_handle = self._next_handle, (self._next_handle + 1) % NUM_HANDLES
        return handle

    def _to_context(self, message: ContextMessage, now_s: float) -> list[Action]:
        context = self._contexts.get(message.context)
        if context is None:
            # A player reports until it has played everything, so its last reports come after `done`.
            is_report = isinstance(message, wire.Playback)
            return [] if is_report else [_error(ErrorCode.UNKNOWN_CONTEXT, "no such context is open", message.context)]
        state = ACCEPTS[context.state].get(type(message))
        if state is None:
            name = type(message).__struct_config__.tag
            text = f"{name} is not possible while the context is {context.state.value}"
            return [_error(ErrorCode.ILLEGAL_IN_STATE, text, message.context)]
        if (excess := self._excess(context, message)) is not None:
            return [excess]
        was_cancelling = context.state is ContextState.CANCELLING
        context.state = state
        return [] if was_cancelling else self._pass_on(context, message, now_s)

    def _excess(self, context: Context, message: ContextMessage) -> Send | None:
        """The error for a message that is one too many or too long."""
        match message:
            case wire.Text(text=text):
                num_bytes = len(text.encode())
                if num_bytes > self._limits.text_bytes:
                    reason = f"text of {num_bytes} bytes is longer than {self._limits.text_bytes}; send it in parts"
                    return _error(ErrorCode.BAD_MESSAGE, reason, context.context_id)
                if context.num_text_bytes + num_bytes > self._limits.context_text_bytes:
                    reason = f"a context takes {self._limits.context_text_bytes} bytes of text in all; open another"
                    return _error(ErrorCode.BAD_MESSAGE, reason, context.context_id)
            case wire.Flush() if context.num_unanswered_flushes >= self._limits.unanswered_flushes:
                reason = f"{self._limits.unanswered_flushes} flushes of this context are unanswered"
                return _error(ErrorCode.RATE_LIMITED, reason, context.context_id)
        return None

    def _pass_on(self, context: Context, message: ContextMessage, now_s: float) -> list[Action]:
        match message:
            case wire.Text(text=text):
                if not text:
                    return []
                if context.first_text_s is None:
                    context.first_text_s = now_s
                context.num_text_bytes += len(text.encode())
                return [PushText(context.utterance_id, text)]
            case wire.Flush(id=flush_id):
                context.num_unanswered_flushes += 1
                return [FlushText(context.utterance_id, flush_id)]
            case wire.End():
                return [EndText(context.utterance_id)]
            case wire.Cancel(played_ms=played_ms):
                return [CancelUtterance(context.utterance_id, played_ms)]
            case wire.Playback():
                context.playback = message
                return []
            case _:
                assert_never(message)

    # --- ends ---------------------------------------------------------------------------------------------

    def _end(self, context: Context, last_word: Send) -> list[Action]:
        del self._contexts[context.context_id]
        del self._by_utterance[context.utterance_id]
        return [last_word, *self._close_if_drained()]

    def _close_if_drained(self) -> list[Action]:
        if not self._is_draining or self._contexts:
            return []
        self._is_closed = True
        return [Close(CloseCode.GOING_AWAY, "the server is going away")]

    def _close_with(self, code: ErrorCode, message: str) -> list[Action]:
        """End every context with this error, then the socket."""
        if self._is_closed:
            return []
        errors: list[Action] = [_error(code, message, context_id, True) for context_id in self._contexts]
        is_our_fault = code is ErrorCode.ENGINE_FAILED
        close_code = CloseCode.OUR_FAULT if is_our_fault else CloseCode.GOING_AWAY
        return [*errors, *self._cancel_all(), Close(close_code, "" if is_our_fault else "the server is going away")]

    def _cancel_all(self) -> list[Action]:
        self._is_closed = True
        running = [c for c in self._contexts.values() if c.state is not ContextState.CANCELLING]
        self._contexts.clear()
        self._by_utterance.clear()
        return [CancelUtterance(context.utterance_id) for context in running]
