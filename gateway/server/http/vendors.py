"""Whose form the answers of a path have, and of a handshake that is refused: a vendor's, or our own. Pure."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, Protocol

from voicegate.protocol.dialects.cartesia_speech import CartesiaSpeech
from voicegate.protocol.dialects.deepgram_speak import DeepgramSpeak
from voicegate.protocol.dialects.elevenlabs_speech import ElevenLabsSpeech, TimedLines, TimedWhole
from voicegate.protocol.dialects.one_shot import OneShot, Problem
from voicegate.protocol.dialects.openai_speech import OpenAiSpeech
from voicegate.protocol.errors import ErrorCode

_SPEAK_PATH: Final = "/v1/speak"
# Of an error in a header: it may name what the client sent.
_HEADER_CHARS: Final = 200


class Vendor(Protocol):
    def read(self, body: bytes, path: Mapping[str, str], query: Mapping[str, str]) -> OneShot:
        """Raises ProtocolViolation."""

    def error_body(self, problem: Problem, status: HTTPStatus, request_id: str) -> object: ...


VENDORS: Final[Mapping[str, Vendor]] = {
    "/v1/audio/speech": OpenAiSpeech(),
    "/v1/text-to-speech/{voice_id}": ElevenLabsSpeech(),
    "/v1/text-to-speech/{voice_id}/stream": ElevenLabsSpeech(),
    "/v1/text-to-speech/{voice_id}/with-timestamps": ElevenLabsSpeech(TimedWhole),
    "/v1/text-to-speech/{voice_id}/stream/with-timestamps": ElevenLabsSpeech(TimedLines),
    "/tts/bytes": CartesiaSpeech(),
    "/tts/sse": CartesiaSpeech(is_in_events=True),
    _SPEAK_PATH: DeepgramSpeak(),
}
# WebSockets too, and lists of a vendor's own; what is everybody's (/v1/voices) has our form.
_BY_BEGINNING: Final[Mapping[str, Vendor]] = {
    "/v1/audio/": OpenAiSpeech(),
    "/v1/models": OpenAiSpeech(),
    "/v1/text-to-speech/": ElevenLabsSpeech(),
    "/tts/": CartesiaSpeech(),
    _SPEAK_PATH: DeepgramSpeak(),
}
UNAUTHORIZED_HEADERS: Final = {"WWW-Authenticate": 'Bearer realm="voicegate"'}


def naming_headers(path: str, request_id: str, refusal: str | None = None) -> dict[str, str]:
    """By which a vendor's clients name a request to whoever is to look into it, and why it was refused."""
    if path != _SPEAK_PATH:
        return {}
    named = {"dg-request-id": request_id}
    if refusal is not None:
        named["dg-error"] = " ".join(refusal.encode("ascii", "replace").decode().split())[:_HEADER_CHARS]
    return named


def unauthorized_body(path: str, reason: str, request_id: str = "") -> object:
    """What a client without a good key is told, in the form that its vendor's has."""
    for beginning, vendor in _BY_BEGINNING.items():
        if path.startswith(beginning):
            return vendor.error_body(Problem(ErrorCode.UNAUTHORIZED, reason), HTTPStatus.UNAUTHORIZED, request_id)
    return {"error": {"code": ErrorCode.UNAUTHORIZED.value, "message": reason}}
