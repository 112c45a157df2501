"""One context of a socket: its states, the table of legal moves, and what a legal message or event comes to.

Sans-I/O like the Session that owns it. docs/protocol.md is normative; a test holds its state table against ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, assert_never

from voicegate.engine import interface as engine
from voicegate.engine import units
from voicegate.engine.interface import EngineInfo, ListenerReport, UtteranceId, UtteranceRequest
from voicegate.gateway.session.actions import (
    Action,
    CancelUtterance,
    EndText,
    FlushText,
    NoteListener,
    PushText,
    Send,
    SendAudio,
    Submit,
    Withdraw,
)
from voicegate.gateway.session.listener import ListenerClock
from voicegate.gateway.session.opening import SessionLimits, effective_format
from voicegate.gateway.session.pacing import SendPace
from voicegate.gateway.session.player import Player
from voicegate.gateway.session.prelude import Prelude, may_sound
from voicegate.gateway.session.quota import Owner
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.messages import SessionMessage

# Audio in one message. Many WebSocket clients hang up at a message over 1 MiB, which 4 s are in the largest form that a
# dialect has. Lower -> more messages from an engine that makes much at once; over 4000 -> such clients are lost.
_MAX_AUDIO_MESSAGE_MS: Final = 1000


class ContextState(Enum):
    __hash__ = object.__hash__  # an Enum's own is written in Python, and asked for at every message

    OPEN = "open"
    DRAINING = "draining"  # the text has ended, audio goes on
    CANCELLING = "cancelling"  # no audio any more; the engine's end event is on its way


# Every legal move: state -> message -> state. What is not here is an error and changes nothing. None: no context.
ACCEPTS: Final[Mapping[ContextState | None, Mapping[type[SessionMessage], ContextState]]] = MappingProxyType(
    {
        None: {wire.Open: ContextState.OPEN},
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

ContextMessage = wire.Text | wire.Flush | wire.End | wire.Cancel | wire.Playback
ProgressEvent = engine.AudioReady | engine.Alignment | engine.Flushed


@dataclass(slots=True)
class Context:
    """One incarnation of a context id. The engine has an utterance of it once there is something to say."""

    context_id: str
    handle: int
    format: wire.Format
    request: UtteranceRequest
    owner: Owner  # for whom it counts
    opened_s: float
    latest_s: float  # when something was last heard from either side
    state: ContextState = ContextState.OPEN
    asked_s: float | None = None  # when the engine was asked to take it up
    has_utterance: bool = False
    is_at_rest: bool = False  # its utterance: all of its text is spoken
    is_returning: bool = False  # from rest: the engine was asked for a place again
    holds_place: bool = False  # among those with something to say
    is_over: bool = False  # it ended by its own move
    prelude: Prelude = field(default_factory=Prelude)
    waiting: list[PushText | FlushText | EndText] = field(default_factory=list)  # for the engine's answer
    waited_ms: float = 0.0  # for it
    num_flushes_answered_early: int = 0  # before there was an utterance, which will answer them too
    pace: SendPace | None = None  # None: audio leaves as it comes
    next_sequence: int = 0
    num_text_bytes: int = 0
    num_characters: int = 0  # of the same text
    has_unflushed_text: bool = False  # of what the engine was given
    num_unanswered_flushes: int = 0
    first_text_s: float | None = None
    first_audio_s: float | None = None
    listener: ListenerClock = field(default_factory=ListenerClock)
    measured: engine.Timing | None = None  # by the engine; of one that was done
    player: Player = field(default_factory=Player)

    @property
    def utterance_id(self) -> UtteranceId:
        return self.request.utterance_id

    @property
    def wants_place(self) -> bool:
        """Among those with something to say."""
        return self.asked_s is not None and not self.is_at_rest and not self.holds_place

    @property
    def has_something_to_say(self) -> bool:
        """Text that was never flushed is spoken once its writer has paused."""
        is_silent = self.state is ContextState.OPEN and not (self.has_unflushed_text or self.num_unanswered_flushes)
        return not is_silent

    def opened(self, info: EngineInfo) -> wire.Opened:
        is_opus = self.format.codec == "opus"
        return wire.Opened(
            context=self.context_id,
            handle=self.handle,
            voice=self.request.voice,
            format=effective_format(self.format),
            sample_rate=units.SAMPLE_RATE_HZ,
            pre_skip=info.pre_skip_48k if is_opus else 0,
        )

    def deadline_s(self, limits: SessionLimits) -> float:
        """When it has lived for too long, or been idle for too long: waiting for its client, that is."""
        life_s = self.opened_s + limits.context_life_s
        return min(life_s, self.latest_s + limits.context_idle_s) if self.state is ContextState.OPEN else life_s

    def take(self, message: ContextMessage, now_s: float) -> list[Action]:
        """Make the move of a message that ACCEPTS holds for this state."""
        before, self.state = self.state, ACCEPTS[self.state][type(message)]
        self.latest_s = now_s
        match message:
            case wire.Text(text=text):
                if not text:
                    return []
                if self.first_text_s is None:
                    self.first_text_s = now_s
                self.num_text_bytes += len(text.encode())
                self.num_characters += len(text)
                return self._take_text(text, now_s)
            case wire.Flush(id=flush_id):
                return self._take_flush(flush_id)
            case wire.End():
                is_silent = self.asked_s is None
                return self._end_in_silence() if is_silent else self._tell_engine(EndText(self.utterance_id))
            case wire.Cancel(played_ms=played_ms):
                if self.has_utterance:
                    is_repeated = before is ContextState.CANCELLING
                    cancel = CancelUtterance(self.utterance_id, self._heard_ms(played_ms))
                    return [] if is_repeated else [*self.withdraw(), *self._take_waiting(), cancel]
                self.is_over = True
                return [*self.cancel(), Send(wire.Cancelled(self.context_id, 0, "", self._unheard_text))]
            case wire.Playback():
                if self.pace is not None:
                    self.pace.note_played(message.played_ms, now_s)
                return self._note(self.player.report(message, now_s)) if self._is_listened_to else []
            case _:
                assert_never(message)

    def reach(self, is_reachable: bool) -> list[Action]:
        """Whether the peer's socket takes what is sent."""
        return self._note(self.player.reach(is_reachable)) if self._is_listened_to else []

    @property
    def _is_listened_to(self) -> bool:
        return self.has_utterance and self.state is not ContextState.CANCELLING

    def _note(self, report: ListenerReport | None) -> list[Action]:
        return [] if report is None else [NoteListener(self.utterance_id, report)]

    def _take_text(self, text: str, now_s: float) -> list[Action]:
        if self.asked_s is not None:
            self.has_unflushed_text = True
            if self.is_at_rest and may_sound(text):
                self.is_at_rest, self.is_returning = False, True
                self.listener.come_back(now_s)
                return [*self._tell_engine(PushText(self.utterance_id, text)), Submit(self.request, is_return=True)]
            return self._tell_engine(PushText(self.utterance_id, text))
        self.prelude.add(text)
        if not self.prelude.is_something_to_say:
            return []
        self.asked_s = now_s
        self.has_unflushed_text = True
        return [Submit(self.request)]

    def _take_flush(self, flush_id: str) -> list[Action]:
        if self.asked_s is not None:
            self.has_unflushed_text = False
            self.num_unanswered_flushes += 1
            return self._tell_engine(FlushText(self.utterance_id, flush_id))
        self.prelude.flush(flush_id)
        return [Send(wire.Flushed(self.context_id, flush_id, audio_ms=0))]

    def _tell_engine(self, order: PushText | FlushText | EndText) -> list[Action]:
        """At once, or with all else once it has taken the utterance up, or taken it up again."""
        if self.has_utterance and not self.is_returning:
            return [order]
        self.waiting.append(order)
        return []

    def _heard_ms(self, played_ms: int | None) -> int | None:
        """Where to split the text: at what was sent rather than at what was made, where the client does not say."""
        return self.pace.sent_ms if played_ms is None and self.pace is not None else played_ms

    @property
    def _unheard_text(self) -> str:
        return self.prelude.text + "".join(order.text for order in self.waiting if isinstance(order, PushText))

    def _end_in_silence(self) -> list[Action]:
        self.is_over = True
        timing = self.timing(engine.Timing())
        return [
            self.audio((), 0, is_last=True),
            Send(wire.Done(self.context_id, 0, 0, timing, characters=self.num_characters)),
        ]

    def begin(self, now_s: float) -> list[Action]:
        """The engine has taken it up: here is all that it missed."""
        assert self.asked_s is not None
        self.has_utterance = True
        self.waited_ms = (now_s - self.asked_s) * 1000
        prelude, waiting = self.prelude, self._take_waiting()
        self.prelude = Prelude()
        if prelude.flush_id is None:
            return [PushText(self.utterance_id, prelude.text), *waiting]
        self.num_flushes_answered_early = 1
        return [
            PushText(self.utterance_id, prelude.before_flush),
            FlushText(self.utterance_id, prelude.flush_id),
            PushText(self.utterance_id, prelude.after_flush),
            *waiting,
        ]

    def rest(self, num_chars: int) -> bool:
        """The engine says that so much text is spoken, and that it expects no more. False: more has come since."""
        is_all = self.state is ContextState.OPEN and num_chars == self.num_characters
        if is_all:
            self.is_at_rest, self.has_unflushed_text = True, False
        return is_all

    def go_on(self) -> list[Action]:
        """The engine has a place for it again: here is all that has come meanwhile."""
        self.is_returning = False
        return self._take_waiting()

    def withdraw(self) -> list[Action]:
        """Withdraws its request to return: an answer is not needed any more."""
        is_returning, self.is_returning = self.is_returning, False
        return [Withdraw(self.utterance_id)] if is_returning else []

    def _take_waiting(self) -> list[Action]:
        waiting, self.waiting = self.waiting, []
        return [*waiting]

    def cancel(self) -> list[Action]:
        """Orders for the engine when no client waits for this context any more."""
        if self.asked_s is None or (self.state is ContextState.CANCELLING and self.has_utterance):
            return []
        if not self.has_utterance:
            return [Withdraw(self.utterance_id)]
        return [*self.withdraw(), CancelUtterance(self.utterance_id)]

    def progress(self, event: ProgressEvent, now_s: float) -> list[Action]:
        self.latest_s = now_s
        match event:
            case engine.AudioReady(packets=packets, pts_48k=pts_48k):
                if self.first_audio_s is None:
                    self.first_audio_s = now_s
                self.listener.sent(len(packets) * self.format.frame_ms, now_s)
                return self._audio_in_parts(packets, pts_48k)
            case engine.Alignment(items=items, estimated=estimated):
                words = tuple(
                    wire.AlignmentItem(item.text, item.start_ms, item.end_ms, item.char_start, item.char_end)
                    for item in items
                )
                return [Send(wire.Alignment(self.context_id, words, estimated))]
            case engine.Flushed() if self.num_flushes_answered_early:
                self.num_flushes_answered_early -= 1
                return []
            case engine.Flushed(flush_id=flush_id, audio_ms=audio_ms):
                self.num_unanswered_flushes -= 1
                return [Send(wire.Flushed(self.context_id, flush_id, audio_ms))]
            case _:
                assert_never(event)

    def _audio_in_parts(self, packets: tuple[bytes, ...], pts_48k: int) -> list[Action]:
        num_at_once = _MAX_AUDIO_MESSAGE_MS // self.format.frame_ms
        packet_48k = self.format.frame_ms * units.OPUS_CLOCK_HZ // 1000
        return [
            self.audio(packets[first : first + num_at_once], pts_48k + first * packet_48k)
            for first in range(0, len(packets), num_at_once)
        ]

    def audio(self, packets: tuple[bytes, ...], pts_48k: int, *, is_last: bool = False) -> SendAudio:
        sequence, self.next_sequence = self.next_sequence, self.next_sequence + 1
        is_first = sequence == 0
        return SendAudio(AudioMessage(self.handle, sequence, pts_48k, packets, is_first=is_first, is_last=is_last))

    def timing(self, measured: engine.Timing) -> wire.Timing:
        ttfb_ms = None
        if self.first_text_s is not None and self.first_audio_s is not None:
            ttfb_ms = round((self.first_audio_s - self.first_text_s) * 1000, 3)
        return wire.Timing(
            ttfb_ms=ttfb_ms,
            queue_ms=self._with_wait(measured.queue_ms),
            llm_first_token_ms=self._with_wait(measured.llm_first_token_ms),
            first_chunk_ms=self._with_wait(measured.first_chunk_ms),
            first_packet_ms=self._with_wait(measured.first_packet_ms),
        )

    def _with_wait(self, measured_ms: float | None) -> float | None:
        """The engine's clock began when it took the utterance up."""
        return None if measured_ms is None else round(measured_ms + self.waited_ms, 3)
