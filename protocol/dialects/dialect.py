"""Dialects: another vendor's protocol as a pure translation onto the native one. One object serves one socket.

It must not know sockets, clocks, encoders, or who else is served. What its client sends becomes native messages and
replies; what the session answers becomes the vendor's messages. docs/compatibility.md says what differs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from voicegate.protocol.errors import CloseCode
from voicegate.protocol.formats import OutputFormat
from voicegate.protocol.messages import ClientMessage, ServerMessage

# A voice that there is, for the name that a client knows; None: the default one.
FindVoice = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Reply:
    """A frame for the client, as it is."""

    frame: str | bytes


@dataclass(frozen=True, slots=True)
class Hangup:
    """The socket closes once all before it is sent; what still runs is cancelled."""

    code: CloseCode = CloseCode.DONE
    reason: str = ""


# An `open` may have two languages, parted by a comma: the first that the model here speaks counts.
Effect = ClientMessage | Reply | Hangup


@dataclass(frozen=True, slots=True)
class Speech:
    """Audio of a context, in the format that the dialect wants it in; `audio` may be empty, in the last one too."""

    context: str
    audio: bytes
    start_ms: int
    end_ms: int
    is_last: bool = False


class Dialect(Protocol):
    def receive(self, raw: str | bytes) -> Sequence[Effect]:
        """A frame of the client's. Bad ones are answered, never raised."""

    def output(self, context: str) -> OutputFormat:
        """Output of a context that an effect of this dialect's opened."""

    def word(self, message: ServerMessage) -> Sequence[Effect]:
        """A message of the session's, in this vendor's words; nothing where there are none."""

    def speak(self, speech: Speech) -> Sequence[Effect]:
        """Audio of a context that was opened and has not ended."""
