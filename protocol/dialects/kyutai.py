"""Kyutai's moshi-server: `/api/tts_streaming`, one utterance a socket, in MessagePack or raw. Pure."""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from voicegate.protocol import messages as wire
from voicegate.protocol.dialects.dialect import Effect, FindVoice, Hangup, Reply, Speech
from voicegate.protocol.dialects.format_names import kyutai_format
from voicegate.protocol.errors import CloseCode, ErrorCode
from voicegate.protocol.formats import OutputFormat
from voicegate.protocol.messages import ServerMessage

DEFAULT_FORMAT: Final = "OggOpus"
_END_OF_TEXT: Final = b"\0"
_CONTEXT: Final = "speech"
# Size of one Audio message, 80 ms; the last may be shorter.
_FRAME_BYTES: Final = 1920 * 4
_ACCOUNT_CHARS: Final = 200


class _Message(Struct, frozen=True):
    type: Literal["Text", "Voice", "Eos"]
    text: str = ""


class Kyutai:
    def __init__(self, format_name: str, voice: str, find_voice: FindVoice) -> None:
        """Raises ProtocolViolation for a format that there is not."""
        self._output = kyutai_format(format_name)
        self._is_packed = format_name.endswith("MessagePack")
        self._is_opus = format_name.startswith("Ogg")
        self._voice = voice
        self._find_voice = find_voice
        self._is_open = False
        self._has_ended = False  # the text
        self._ends_with_blank = True
        self._samples = b""  # what does not fill a frame

    def output(self, context: str) -> OutputFormat:
        return self._output

    def receive(self, raw: str | bytes) -> Sequence[Effect]:
        if self._has_ended:
            return []
        if isinstance(raw, str):
            return self._say(raw)
        if raw == _END_OF_TEXT:
            return self._end()
        try:
            message = msgspec.msgpack.decode(raw, type=_Message)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return self._fail(f"no message of this protocol: {str(error)[:_ACCOUNT_CHARS]}")
        match message.type:
            case "Text":
                return self._say(message.text)
            case "Eos":
                return self._end()
            case "Voice":
                return self._fail("voices are chosen by the parameter `voice`; this server takes no embeddings")

    def _say(self, text: str) -> list[Effect]:
        """A message is a word or more, and ends where a word does: so that protocol's clients send them."""
        if not text:
            return []
        blank = "" if self._ends_with_blank or text[0].isspace() else " "
        self._ends_with_blank = text[-1].isspace()
        return [*self._open(), wire.Text(_CONTEXT, blank + text)]

    def _open(self) -> list[Effect]:
        if self._is_open:
            return []
        self._is_open = True
        return [wire.Open(context=_CONTEXT, voice=self._find_voice(self._voice), format=self._output.native)]

    def _end(self) -> list[Effect]:
        self._has_ended = True
        return [*self._open(), wire.End(_CONTEXT)]

    def speak(self, speech: Speech) -> Sequence[Effect]:
        if not self._is_packed:
            return [Reply(speech.audio)] if speech.audio else []
        if self._is_opus:
            return [_packed("OggOpus", data=list(speech.audio))] if speech.audio else []
        self._samples += speech.audio
        end = len(self._samples) if speech.is_last else len(self._samples) // _FRAME_BYTES * _FRAME_BYTES
        frames = [self._samples[at : min(at + _FRAME_BYTES, end)] for at in range(0, end, _FRAME_BYTES)]
        self._samples = self._samples[end:]
        return [_packed("Audio", pcm=memoryview(frame).cast("f").tolist()) for frame in frames]

    def word(self, message: ServerMessage) -> Sequence[Effect]:
        match message:
            case wire.Ready() if self._is_packed:
                return [_packed("Ready")]
            case wire.Alignment(items=items) if self._is_packed:
                return [
                    _packed("Text", text=item.text.strip(), start_s=item.start_ms / 1000, stop_s=item.end_ms / 1000)
                    for item in items
                ]
            case wire.Done():
                return [Hangup()]
            case wire.Error() if message.fatal or isinstance(message.context, str):
                return self._fail(message.message, message.code)
            case _:
                return []

    def _fail(self, text: str, code: str = ErrorCode.BAD_MESSAGE.value) -> list[Effect]:
        self._has_ended = True
        said = [_packed("Error", message=text)] if self._is_packed else []
        return [*said, Hangup(CloseCode.POLICY, code)]


def _packed(kind: str, **fields: Any) -> Reply:
    return Reply(msgspec.msgpack.encode({"type": kind, **fields}))
