"""All that a Session can ask of the shell around it; the shell matches on these, nothing else."""

from dataclasses import dataclass

from voicegate.engine.interface import ListenerReport, UtteranceId, UtteranceRequest
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.errors import CloseCode
from voicegate.protocol.messages import ServerMessage


@dataclass(frozen=True, slots=True)
class Send:
    message: ServerMessage


@dataclass(frozen=True, slots=True)
class SendAudio:
    message: AudioMessage


@dataclass(frozen=True, slots=True)
class Submit:
    """To be answered with `submitted` or `refused`, at once or after a wait."""

    request: UtteranceRequest


@dataclass(frozen=True, slots=True)
class Withdraw:
    """A `Submit` that needs no answer any more."""

    utterance_id: UtteranceId


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
class NoteListener:
    utterance_id: UtteranceId
    report: ListenerReport


@dataclass(frozen=True, slots=True)
class CancelUtterance:
    utterance_id: UtteranceId
    played_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Close:
    """The last action of a session."""

    code: CloseCode
    reason: str


Action = Send | SendAudio | Submit | Withdraw | PushText | FlushText | EndText | NoteListener | CancelUtterance | Close
