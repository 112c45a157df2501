"""Translations of what a socket speaks: frames in, effects out; the session's messages in, frames out. Native, or a
dialect.

Audio of a dialect is made here, behind everything that a cancel drops, and off the event loop where it costs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from voicegate.engine.interface import EngineInfo
from voicegate.gateway.formats.encoder import StreamEncoder
from voicegate.gateway.server.conversations.conversation import Conversation
from voicegate.gateway.server.conversations.encoding import encoded
from voicegate.gateway.session.adapting import adapted
from voicegate.gateway.session.continuity import Continuity
from voicegate.gateway.session.voice_names import VoiceNames
from voicegate.protocol import audio_message, codec
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.dialects.dialect import Dialect, Effect, FindVoice, Reply, Speech
from voicegate.protocol.errors import ErrorCode, ProtocolViolation
from voicegate.protocol.formats import NATIVE_RATE_HZ, OutputFormat
from voicegate.protocol.messages import ClientMessage, ServerMessage
from voicegate.protocol.opus_packet import packet_duration_48k

# Reduces a request to what is possible here.
Adapt = Callable[[wire.Open], wire.Open]

_PCM_BYTES_PER_MS = 2 * NATIVE_RATE_HZ // 1000
_UNCOUNTED_TYPES = frozenset(kind.__struct_config__.tag for kind in wire.UNCOUNTED_OF_CLIENT)


class Translator(Protocol):
    def hear(self, raw: str | bytes) -> Sequence[Effect]:
        """Raises ProtocolViolation for what the session is to answer."""

    async def word(self, item: ServerMessage | AudioMessage) -> Sequence[Effect]:
        """In order, one at a time."""

    @property
    def frame_of(self) -> Callable[[ServerMessage | AudioMessage], str | bytes] | None:
        """One frame, where a message always is one and takes no time. None: it is not so, ask `word`."""


class NativeTranslator:
    """Counts what comes and keeps what goes, so that the session can go on over another socket."""

    def __init__(self, continuity: Continuity | None, on_kept: Callable[[], None] = lambda: None) -> None:
        """`continuity` None: it cannot. `on_kept` is called when more is kept, or less."""
        self._continuity = continuity
        self._on_kept = on_kept

    def hear(self, raw: str | bytes) -> Sequence[Effect]:
        try:
            message = _read(raw)
        except ProtocolViolation as violation:
            if violation.message_type not in _UNCOUNTED_TYPES:
                self._note_received(raw)
            raise
        if isinstance(message, wire.Ack):
            self._acknowledge(message)
            return []
        if isinstance(message, wire.UNCOUNTED_OF_CLIENT):
            return [message]
        self._note_received(raw)
        ack = None if self._continuity is None else self._continuity.take_due_ack()
        return [message] if ack is None else [message, Reply(codec.encode(ack))]

    async def word(self, item: ServerMessage | AudioMessage) -> Sequence[Effect]:
        return [Reply(self.frame_of(item))]

    def frame_of(self, item: ServerMessage | AudioMessage) -> str | bytes:
        frame = audio_message.pack(item) if isinstance(item, AudioMessage) else codec.encode(item)
        if self._continuity is not None and not isinstance(item, wire.UNCOUNTED_OF_SERVER):
            self._continuity.note_sent(frame)
            if self._continuity.is_wanted:
                self._on_kept()
        return frame

    def _note_received(self, raw: str | bytes) -> None:
        if self._continuity is not None:
            self._continuity.note_received(len(raw))

    def _acknowledge(self, ack: wire.Ack) -> None:
        if self._continuity is not None:
            self._continuity.acknowledge(ack.received)
            self._on_kept()


def _read(raw: str | bytes) -> ClientMessage:
    if isinstance(raw, bytes):
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, "a client sends text messages only")
    return codec.decode_client(raw)


@dataclass(slots=True)
class _Stream:
    """The audio of one context on its way out."""

    context: str
    output: OutputFormat
    encoder: StreamEncoder
    pre_skip_48k: int
    sent_48k: int = 0

    async def encode(self, message: AudioMessage) -> Speech:
        audio = await encoded(self.encoder, self.output, message)
        start_ms = self._sent_ms
        self.sent_48k += sum(map(self._duration_48k, message.packets))
        return Speech(self.context, audio, start_ms, self._sent_ms, is_last=message.is_last)

    def _duration_48k(self, packet: bytes) -> int:
        is_opus = self.output.native.codec == "opus"
        return packet_duration_48k(packet) if is_opus else len(packet) * 48 // _PCM_BYTES_PER_MS

    @property
    def _sent_ms(self) -> int:
        return max(0, self.sent_48k - self.pre_skip_48k) // 48


class DialectTranslator:
    frame_of: Final = None

    def __init__(self, dialect: Dialect, adapt: Adapt) -> None:
        self._dialect = dialect
        self._adapt = adapt
        self._streams: dict[str, _Stream] = {}  # by context
        self._by_handle: dict[int, _Stream] = {}

    def hear(self, raw: str | bytes) -> Sequence[Effect]:
        return self._adapted(self._dialect.receive(raw))

    def _adapted(self, effects: Sequence[Effect]) -> list[Effect]:
        return [self._adapt(effect) if isinstance(effect, wire.Open) else effect for effect in effects]

    async def word(self, item: ServerMessage | AudioMessage) -> Sequence[Effect]:
        match item:
            case AudioMessage(handle=handle):
                return self._dialect.speak(await self._by_handle[handle].encode(item))
            case wire.Opened(context=context, handle=handle, pre_skip=pre_skip_48k):
                output = self._dialect.output(context)
                encoder = StreamEncoder(output, pre_skip_48k=pre_skip_48k)
                stream = _Stream(context, output, encoder, pre_skip_48k)
                self._streams[context] = self._by_handle[handle] = stream
            case wire.Done(context=context) | wire.Cancelled(context=context):
                self._forget(context)
            case wire.Error(context=str(context)) if item.fatal:
                self._forget(context)
            case _:
                pass
        return self._adapted(self._dialect.word(item))

    def _forget(self, context: str) -> None:
        stream = self._streams.pop(context, None)
        if stream is not None:
            self._by_handle = {handle: other for handle, other in self._by_handle.items() if other is not stream}


def translator_of(
    make_dialect: Callable[[FindVoice], Dialect],
    conversation: Conversation,
    voice_names: VoiceNames,
    info: Callable[[], EngineInfo | None],
) -> DialectTranslator:
    """`info`: with the voices and languages of the moment."""

    def find_voice(name: str) -> str | None:
        known = info()
        return None if known is None else voice_names.resolve(name, known)

    def adapt(message: wire.Open) -> wire.Open:
        known = info()
        if known is None:
            return message
        made = adapted(message, known)
        conversation.note_not_followed(made.not_followed)
        return made.message

    return DialectTranslator(make_dialect(find_voice), adapt)
