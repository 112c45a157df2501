"""ElevenLabs' `POST /v1/text-to-speech/{voice_id}` and `/stream`. Pure."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from msgspec import Struct

from voicegate.protocol.dialects.format_names import elevenlabs_format
from voicegate.protocol.dialects.one_shot import OneShot, PlainAudio, Problem, decode

_DEFAULT_FORMAT: Final = "mp3_44100_128"


class _VoiceSettings(Struct, frozen=True):
    speed: float | None = None


class _Body(Struct, frozen=True):
    text: str
    voice_settings: _VoiceSettings | None = None
    seed: int | None = None


class ElevenLabsSpeech:
    def read(self, body: bytes, path: Mapping[str, str], query: Mapping[str, str]) -> OneShot:
        """Raises ProtocolViolation."""
        asked = decode(body, _Body)
        output = elevenlabs_format(query.get("output_format", _DEFAULT_FORMAT))
        speed = asked.voice_settings.speed if asked.voice_settings is not None else None
        return OneShot(
            text=asked.text,
            output=output,
            framing=PlainAudio(output),
            voice=path["voice_id"],
            speed=1.0 if speed is None else speed,
            seed=asked.seed,
        )

    def error_body(self, problem: Problem, status: HTTPStatus, request_id: str) -> object:
        kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request"
        detail = {"type": kind, "status": problem.code.value, "message": problem.message, "request_id": request_id}
        return {"detail": detail}
