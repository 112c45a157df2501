"""Cartesia's `POST /tts/bytes` and `/tts/sse`. Pure."""

import base64
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

import orjson
from msgspec import Struct

from voicegate.protocol.dialects.cartesia import (
    Generation,
    asked_speed,
    is_normalized,
    languages_of,
    word_timestamps,
)
from voicegate.protocol.dialects.format_names import cartesia_format
from voicegate.protocol.dialects.one_shot import Framing, OneShot, PlainAudio, Problem, RequestViolation, decode
from voicegate.protocol.formats import NATIVE_RATE_HZ
from voicegate.protocol.messages import AlignmentItem, Done

_ERROR_NAMES: Final = {
    "unknown_voice": "voice_not_found",
    "unknown_model": "model_not_found",
    "too_many_contexts": "concurrency_limited",
    "overloaded": "concurrency_limited",
}


class _Voice(Struct, frozen=True):
    id: str | None = None  # none in mode `embedding`


class _OutputFormat(Struct, frozen=True):
    container: str = "raw"
    encoding: str | None = None
    sample_rate: int = NATIVE_RATE_HZ
    bit_rate: int | None = None


class _Body(Struct, frozen=True):
    transcript: str
    voice: str | _Voice | None = None
    output_format: _OutputFormat = _OutputFormat()
    generation_config: Generation | None = None
    speed: str | float | None = None
    language: str | None = None
    locale: str | None = None
    normalization: str | None = None
    add_timestamps: bool | None = None
    context_id: str | None = None


class SpeechEvents:
    """`/tts/sse`: chunks, and before each the words that begin in it."""

    content_type = "text/event-stream; charset=utf-8"

    def __init__(self, context_id: str | None, *, has_timestamps: bool) -> None:
        self._context = {} if context_id is None else {"context_id": context_id}
        self._has_timestamps = has_timestamps

    def audio(self, data: bytes) -> bytes:
        return self._partial("chunk", {"data": base64.b64encode(data).decode(), "step_time": 0.0})

    def words(self, items: Sequence[AlignmentItem]) -> bytes:
        return self._partial("timestamps", {"word_timestamps": word_timestamps(items)}) if self._has_timestamps else b""

    def end(self, done: Done) -> bytes:
        return _event({"type": "done", "done": True, "status_code": HTTPStatus.OK.value, **self._context})

    def failure(self, problem: Problem) -> bytes | None:
        return _event({**error_body(problem, problem.status, ""), "done": True, **self._context})

    def _partial(self, kind: str, fields: Mapping[str, object]) -> bytes:
        status = HTTPStatus.PARTIAL_CONTENT.value
        return _event({"type": kind, **fields, "done": False, "status_code": status, **self._context})


class CartesiaSpeech:
    def __init__(self, *, is_in_events: bool = False) -> None:
        self._is_in_events = is_in_events

    def read(self, body: bytes, _path: Mapping[str, str], _query: Mapping[str, str]) -> OneShot:
        """Raises ProtocolViolation."""
        asked = decode(body, _Body)
        form = asked.output_format
        if self._is_in_events and form.container != "raw":
            raise RequestViolation("events carry raw audio: output_format.container is raw", "output_format.container")
        output = cartesia_format(form.container, form.encoding, form.sample_rate, form.bit_rate)
        framing: Framing = PlainAudio(output)
        if self._is_in_events:
            framing = SpeechEvents(asked.context_id, has_timestamps=bool(asked.add_timestamps))
        return OneShot(
            text=asked.transcript,
            output=output,
            framing=framing,
            voice=asked.voice.id if isinstance(asked.voice, _Voice) else asked.voice,
            speed=asked_speed(asked.speed, asked.generation_config),
            language=languages_of(asked.locale, asked.language),
            is_normalized=is_normalized(asked.normalization),
        )

    def error_body(self, problem: Problem, status: HTTPStatus, request_id: str) -> object:
        return error_body(problem, status, request_id)


def error_body(problem: Problem, status: HTTPStatus, request_id: str) -> dict[str, object]:
    return {
        "type": "error",
        "status_code": status.value,
        "error_code": problem.name_of(_ERROR_NAMES),
        "title": status.phrase,
        "message": problem.message,
        "error": f"{status.phrase}: {problem.message}",  # where versions up to 2025-04-16 have it
        "request_id": request_id,
    }


def _event(data: Mapping[str, object]) -> bytes:
    return b"event: " + str(data["type"]).encode() + b"\ndata: " + orjson.dumps(data) + b"\n\n"
