"""Deepgram's `POST /v1/speak`. Pure."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from msgspec import Struct

from voicegate.protocol.dialects.format_names import deepgram_format
from voicegate.protocol.dialects.one_shot import OneShot, PlainAudio, Problem, decode
from voicegate.protocol.dialects.reading import convert
from voicegate.protocol.errors import ErrorCode, ProtocolViolation

_DEFAULT_ENCODING: Final = "mp3"
_ERROR_NAMES: Final = {
    "unauthorized": "INVALID_AUTH",
    "bad_message": "Bad Request",
    "unsupported_format": "UNSUPPORTED_AUDIO_FORMAT",
    "rate_limited": "TOO_MANY_REQUESTS",
    "too_many_contexts": "TOO_MANY_REQUESTS",
}


class _Body(Struct, frozen=True):
    text: str


class _Query(Struct, frozen=True):
    encoding: str = _DEFAULT_ENCODING
    container: str | None = None
    sample_rate: int | None = None
    bit_rate: int | None = None
    speed: float | None = None
    model: str | None = None  # which is a voice
    callback: str | None = None


class DeepgramSpeak:
    def read(self, body: bytes, _path: Mapping[str, str], query: Mapping[str, str]) -> OneShot:
        """Raises ProtocolViolation."""
        asked, how = decode(body, _Body), convert(query, _Query)
        if how.callback:
            text = "there is no callback here, for which one would wait in vain: the audio is the answer to the request"
            raise ProtocolViolation(ErrorCode.UNSUPPORTED, text)
        output = deepgram_format(
            how.encoding,
            how.sample_rate,
            container=how.container or "wav",  # of samples; what is compressed has its own
            bitrate_bps=how.bit_rate,
        )
        return OneShot(text=asked.text, output=output, framing=PlainAudio(output), voice=how.model, speed=how.speed)

    def error_body(self, problem: Problem, _status: HTTPStatus, request_id: str) -> object:
        return {"err_code": problem.name_of(_ERROR_NAMES), "err_msg": problem.message, "request_id": request_id}
