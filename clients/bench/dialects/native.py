"""docs/protocol.md, as the bench speaks it: one context after another on one socket, and nothing kept. Pure.

Not the client of clients/python: a slow reader has to stop reading its socket, which that one never does.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from voicegate.clients.bench.dialects.conversation import Chunk, ConversationLost, Ended, pcm_chunk
from voicegate.clients.bench.dialects.ear import Ear
from voicegate.clients.bench.dialects.websocket import Frame, speaking
from voicegate.clients.bench.plan import Target, Turn
from voicegate.clients.python.address import stream_url
from voicegate.clients.python.audio import duration_48k
from voicegate.protocol import audio_message, codec
from voicegate.protocol import messages as wire
from voicegate.protocol.errors import ErrorCode, ProtocolViolation
from voicegate.protocol.messages import SUBPROTOCOL

_NO_ROOM: Final = (ErrorCode.OVERLOADED.value, ErrorCode.TOO_MANY_CONTEXTS.value)


class NativePhrases:
    is_spent = False
    is_cancel_answered = True

    def __init__(self, target: Target, greeting: Frame | None) -> None:
        """Raises ProtocolViolation."""
        ready = codec.decode_server(greeting) if isinstance(greeting, str) else None
        if not isinstance(ready, wire.Ready):
            raise ProtocolViolation(ErrorCode.BAD_MESSAGE, "it did not begin with `ready`")
        self._limits = ready.limits
        self._codec_name = target.codec
        self._num_turns = 0
        self._context = ""
        self._opened: wire.Opened | None = None
        self._ear = Ear()

    def begin(self, turn: Turn) -> Sequence[Frame]:
        self._num_turns += 1
        self._context, self._opened, self._ear = f"t{self._num_turns}", None, Ear()
        # Not a wire.Open: a server may have modes that this client does not know.
        message: dict[str, Any] = {"type": "open", "context": self._context, "voice": turn.voice, "mode": turn.mode}
        message["format"] = {"codec": self._codec_name}
        if turn.is_hurried:
            message["pace"] = {"lead_ms": self._limits.lead_ms}
        return [msgspec.json.encode(message).decode()]

    def say(self, text: str) -> Sequence[Frame]:
        return [codec.encode(wire.Text(self._context, text))]

    def end(self) -> Sequence[Frame]:
        return [codec.encode(wire.End(self._context))]

    def cancel(self, played_ms: int) -> Sequence[Frame]:
        return [codec.encode(wire.Cancel(self._context, played_ms))]

    def take(self, raw: Frame) -> Chunk | Ended | None:
        return self._take_audio(raw) if isinstance(raw, bytes) else self._take(codec.read_server(raw))

    def hung_up(self) -> Ended | None:
        return None

    def _take_audio(self, raw: bytes) -> Chunk | None:
        message = audio_message.unpack(raw)
        if self._opened is None or message.handle != self._opened.handle or not message.packets:
            return None
        if self._opened.format.codec == "opus":
            length_48k = duration_48k(message.packets, self._opened.format, self._opened.sample_rate)
            return Chunk(length_48k, self._ear.hear(message.packets))
        return pcm_chunk(b"".join(message.packets), self._opened.sample_rate)

    def _take(self, message: wire.ServerMessage | None) -> Ended | None:
        match message:
            case wire.Opened() if message.context == self._context:
                self._opened = message
            case wire.Done() if message.context == self._context:
                return Ended()
            case wire.Cancelled() if message.context == self._context:
                return Ended(is_cancelled=True)
            case wire.Error() if message.fatal and message.context == self._context:
                return Ended(is_refused=message.code in _NO_ROOM, message=f"{message.code}: {message.message}")
            case wire.Error() if message.fatal and not isinstance(message.context, str):
                raise ConversationLost(f"{message.code}: {message.message}", is_refused=message.code in _NO_ROOM)
            case _:
                pass
        return None


connect = speaking(lambda target: stream_url(target.url), NativePhrases, subprotocol=SUBPROTOCOL, is_greeted=True)
