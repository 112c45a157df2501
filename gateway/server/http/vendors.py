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
_MODELS_PATH: Final = "/v1/models"
# Length of an error in a header: it may name what the client sent.
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
# WebSockets too, and what there is not here.
_BY_BEGINNING: Final[Mapping[str, type[Vendor]]] = {
    "/v1/audio/": OpenAiSpeech,
    "/v1/text-to-": ElevenLabsSpeech,
    "/v1/single-use-token/": ElevenLabsSpeech,
    "/v2/voices": ElevenLabsSpeech,
    "/tts/": CartesiaSpeech,
    "/voices": CartesiaSpeech,
    "/access-token": CartesiaSpeech,
    _SPEAK_PATH: DeepgramSpeak,
    "/v2/speak": DeepgramSpeak,
    "/v1/auth/": DeepgramSpeak,
}
_KNOWN_CODES: Final = {code.value: code for code in ErrorCode}
NO_HEADERS: Final[Mapping[str, str]] = {}
UNAUTHORIZED_HEADERS: Final = {"WWW-Authenticate": 'Bearer realm="voicegate"'}


def naming_headers(
    path: str, request_id: str, refusal: str | None = None, *, headers: Mapping[str, str] = NO_HEADERS
) -> dict[str, str]:
    """Names for a request, by which support can look into it, and why it was refused; `headers`: its own."""
    named = {"x-request-id": request_id}
    kind = vendor_of(path, headers)
    if kind is ElevenLabsSpeech:
        return named | {"request-id": request_id}
    if kind is not DeepgramSpeak:
        return named
    named["dg-request-id"] = request_id
    if refusal is not None:
        named["dg-error"] = " ".join(refusal.encode("ascii", "replace").decode().split())[:_HEADER_CHARS]
    return named


def vendor_of(path: str, headers: Mapping[str, str]) -> type[Vendor] | None:
    """The path's vendor, or else the client's."""
    for beginning, kind in _BY_BEGINNING.items():
        if path.startswith(beginning):
            return kind
    return vendor_by_headers(headers) or (OpenAiSpeech if path.startswith(_MODELS_PATH) else None)


def vendor_by_headers(headers: Mapping[str, str]) -> type[Vendor] | None:
    """Whose client asks at a path that is everybody's (/v1/voices, /v1/models), by what no other's sends."""
    if "xi-api-key" in headers:
        return ElevenLabsSpeech
    if "cartesia-version" in headers:
        return CartesiaSpeech
    if "x-stainless-lang" in headers:  # of packages that are made as OpenAI's is, of which Cartesia's is the other here
        return OpenAiSpeech
    return DeepgramSpeak if headers.get("authorization", "").lower().startswith("token ") else None


def problem_body(
    path: str,
    code: str,
    message: str,
    status: HTTPStatus,
    *,
    request_id: str = "",
    headers: Mapping[str, str] = NO_HEADERS,
    field: str | None = None,
) -> object:
    """In the form of the path's vendor, or else of the client's, or else in ours."""
    kind = vendor_of(path, headers)
    if kind is None:
        return {"error": {"code": code, "message": message}}
    problem = Problem(_KNOWN_CODES.get(code, ErrorCode.BAD_MESSAGE), message, field=field, own_name=code)
    return kind().error_body(problem, status, request_id)


def unauthorized_body(path: str, reason: str, request_id: str = "", headers: Mapping[str, str] = NO_HEADERS) -> object:
    """The body for a client without a good key."""
    code, status = ErrorCode.UNAUTHORIZED.value, HTTPStatus.UNAUTHORIZED
    return problem_body(path, code, reason, status, request_id=request_id, headers=headers)
