"""One context of a socket: its states, the table of legal moves, and what a legal message or event comes to.

Sans-I/O like the Session that owns it. docs/protocol.md is normative; a test holds its state table against ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, assert_never

from voicegate.engine import interface as engine
from voicegate.engine import units
from voicegate.engine.interface import EngineInfo, UtteranceId
from voicegate.gateway.session.actions import Action, CancelUtterance, EndText, FlushText, PushText, Send, SendAudio
from voicegate.gateway.session.opening import effective_format
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.messages import ClientMessage


class ContextState(Enum):
    OPENING = "opening"  # submitted, and the engine has not said yes or no; never seen by a client
    OPEN = "open"
    DRAINING = "draining"  # the text has ended, audio goes on
    CANCELLING = "cancelling"  # no audio any more; the engine's end event is on its way


# Every legal move: state -> message -> state. What is not here is an error and changes nothing. None: no context.
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

ContextMessage = wire.Text | wire.Flush | wire.End | wire.Cancel | wire.Playback
ProgressEvent = engine.AudioReady | engine.Alignment | engine.Flushed


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

    def opened(self, info: EngineInfo) -> wire.Opened:
        is_opus = self.opening.format.codec == "opus"
        return wire.Opened(
            context=self.context_id,
            handle=self.handle,
            voice=info.default_voice if self.opening.voice is None else self.opening.voice,
            format=effective_format(self.opening.format),
            sample_rate=units.SAMPLE_RATE_HZ,
            pre_skip=info.pre_skip_48k if is_opus else 0,
        )

    def take(self, message: ContextMessage, now_s: float) -> list[Action]:
        """Make the move of a message that ACCEPTS holds for this state."""
        before, self.state = self.state, ACCEPTS[self.state][type(message)]
        match message:
            case wire.Text(text=text):
                if not text:
                    return []
                if self.first_text_s is None:
                    self.first_text_s = now_s
                self.num_text_bytes += len(text.encode())
                return [PushText(self.utterance_id, text)]
            case wire.Flush(id=flush_id):
                self.num_unanswered_flushes += 1
                return [FlushText(self.utterance_id, flush_id)]
            case wire.End():
                return [EndText(self.utterance_id)]
            case wire.Cancel(played_ms=played_ms):
                is_repeated = before is ContextState.CANCELLING
                return [] if is_repeated else [CancelUtterance(self.utterance_id, played_ms)]
            case wire.Playback():
                self.playback = message
                return []
            case _:
                assert_never(message)

    def progress(self, event: ProgressEvent, now_s: float) -> Send | SendAudio:
        match event:
            case engine.AudioReady(packets=packets, pts_48k=pts_48k):
                if self.first_audio_s is None:
                    self.first_audio_s = now_s
                return self.audio(packets, pts_48k)
            case engine.Alignment(items=items, estimated=estimated):
                words = tuple(
                    wire.AlignmentItem(item.text, item.start_ms, item.end_ms, item.char_start, item.char_end)
                    for item in items
                )
                return Send(wire.Alignment(self.context_id, words, estimated))
            case engine.Flushed(flush_id=flush_id, audio_ms=audio_ms):
                self.num_unanswered_flushes -= 1
                return Send(wire.Flushed(self.context_id, flush_id, audio_ms))
            case _:
                assert_never(event)

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
            queue_ms=measured.queue_ms,
            llm_first_token_ms=measured.llm_first_token_ms,
            first_chunk_ms=measured.first_chunk_ms,
            first_packet_ms=measured.first_packet_ms,
        )
