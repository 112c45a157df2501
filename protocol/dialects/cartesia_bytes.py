"""Cartesia's `POST /tts/bytes`. Pure."""

from collections.abc import Mapping
from http import HTTPStatus

from msgspec import Struct

from voicegate.protocol.dialects.format_names import cartesia_format
from voicegate.protocol.dialects.one_shot import OneShot, PlainAudio, Problem, decode
from voicegate.protocol.formats import NATIVE_RATE_HZ


class _Voice(Struct, frozen=True):
    id: str | None = None  # none in mode `embedding`


class _OutputFormat(Struct, frozen=True):
    container: str = "raw"
    encoding: str | None = None
    sample_rate: int = NATIVE_RATE_HZ
    bit_rate: int | None = None


class _GenerationConfig(Struct, frozen=True):
    speed: float | None = None


class _Body(Struct, frozen=True):
    transcript: str
    voice: str | _Voice | None = None
    output_format: _OutputFormat = _OutputFormat()
    generation_config: _GenerationConfig | None = None


class CartesiaBytes:
    def read(self, body: bytes, _path: Mapping[str, str], _query: Mapping[str, str]) -> OneShot:
        """Raises ProtocolViolation."""
        asked = decode(body, _Body)
        form, config = asked.output_format, asked.generation_config
        output = cartesia_format(form.container, form.encoding, form.sample_rate, form.bit_rate)
        return OneShot(
            text=asked.transcript,
            output=output,
            framing=PlainAudio(output),
            voice=asked.voice.id if isinstance(asked.voice, _Voice) else asked.voice,
            speed=None if config is None else config.speed,
        )

    def error_body(self, problem: Problem, status: HTTPStatus, request_id: str) -> object:
        return {
            "type": "error",
            "status_code": status.value,
            "error_code": problem.code.value,
            "title": status.phrase,
            "message": problem.message,
            "request_id": request_id,
        }
