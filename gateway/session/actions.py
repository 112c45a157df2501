"""All that a Session can ask of the shell around it; the shell matches on these, nothing else.

Structs, because some are made for each packet: a frozen dataclass costs several times as much to make.
"""

import msgspec

from voicegate.engine.interface import ListenerReport, UtteranceId, UtteranceRequest
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.errors import CloseCode
from voicegate.protocol.messages import ServerMessage


class Send(msgspec.Struct, frozen=True):
    message: ServerMessage


class SendAudio(msgspec.Struct, frozen=True):
    message: AudioMessage


class Submit(msgspec.Struct, frozen=True):
    """To be answered with `submitted` or `refused`, at once or after a wait."""

    request: UtteranceRequest
    is_return: bool = False  # the engine has the utterance, at rest


class Withdraw(msgspec.Struct, frozen=True):
    """A `Submit` that needs no answer any more."""

    utterance_id: UtteranceId


class PushText(msgspec.Struct, frozen=True):
    utterance_id: UtteranceId
    text: str


class FlushText(msgspec.Struct, frozen=True):
    utterance_id: UtteranceId
    flush_id: str


class EndText(msgspec.Struct, frozen=True):
    utterance_id: UtteranceId


class NoteListener(msgspec.Struct, frozen=True):
    utterance_id: UtteranceId
    report: ListenerReport


class CancelUtterance(msgspec.Struct, frozen=True):
    utterance_id: UtteranceId
    played_ms: int | None = None


class Close(msgspec.Struct, frozen=True):
    """The last action of a session."""

    code: CloseCode
    reason: str


Action = Send | SendAudio | Submit | Withdraw | PushText | FlushText | EndText | NoteListener | CancelUtterance | Close
