"""OpenAI's `POST /v1/audio/speech`. Pure."""

import base64
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

import orjson
from msgspec import Meta, Struct

from voicegate.protocol.dialects.format_names import openai_format
from voicegate.protocol.dialects.one_shot import Framing, OneShot, PlainAudio, Problem, decode
from voicegate.protocol.dialects.reading import language_code
from voicegate.protocol.dialects.reference import check_no_other_reference, reference_of
from voicegate.protocol.formats import OutputFormat
from voicegate.protocol.messages import AlignmentItem, Done, Pronunciations

# Names that its clients know: whatever they ask for, the model that is loaded speaks.
MODEL_NAMES: Final = ("gpt-4o-mini-tts", "tts-1", "tts-1-hd")
_ERROR_NAMES: Final = {
    "unauthorized": "invalid_api_key",
    "rate_limited": "rate_limit_exceeded",
    "too_many_contexts": "rate_limit_exceeded",
    "unknown_model": "model_not_found",
}
_STREAMED_BY_VLLM_OMNI: Final = ("pcm", "wav")
# Length of a token of speech, as this family of models counts; usage is told in tokens.
_TOKEN_MS: Final = 40


class _VoiceId(Struct, frozen=True):
    id: str


class _Body(Struct, frozen=True):
    input: str
    model: str | None = None
    voice: str | _VoiceId | None = None
    instructions: str | None = None
    response_format: str | None = None
    speed: Annotated[float, Meta(ge=0.25, le=4.0)] | None = None
    stream_format: Literal["sse", "audio"] | None = None
    # Not OpenAI's:
    seed: int | None = None
    language: str | None = None
    normalize: bool | None = None
    pronunciations: Pronunciations | None = None
    # vLLM-Omni's:
    stream: bool | None = None
    speaker: str | None = None
    ref_audio: str | list[str] | None = None
    ref_text: str | None = None
    x_vector_only_mode: bool | None = None
    # Refused by name, see OTHER_REFERENCES:
    speaker_embedding: Any = None
    ref_audio_2: Any = None
    references: Any = None
    reference_audio: Any = None
    speaker_audio: Any = None
    voice_prompt: Any = None


class SpeechEvents:
    """`stream_format: "sse"`: the audio in server-sent events."""

    content_type = "text/event-stream; charset=utf-8"

    def __init__(self, num_characters: int) -> None:
        self._num_characters = num_characters

    def audio(self, data: bytes) -> bytes:
        return _event({"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()})

    def words(self, items: Sequence[AlignmentItem]) -> bytes:
        return b""

    def end(self, done: Done) -> bytes:
        return _event({"type": "speech.audio.done", "usage": self._usage(done)}) + b"data: [DONE]\n\n"

    def _usage(self, done: Done) -> dict[str, int]:
        num_tokens = done.audio_ms // _TOKEN_MS
        return {
            "input_tokens": self._num_characters,
            "output_tokens": num_tokens,
            "total_tokens": self._num_characters + num_tokens,
        }

    def failure(self, problem: Problem) -> bytes | None:
        return _event({"type": "error", **error_body(problem, problem.status)})


class OmniEvents(SpeechEvents):
    """vLLM-Omni's form of the same: each with its name in front, and nothing that is no JSON."""

    def __init__(self, num_characters: int, response_format: str) -> None:
        super().__init__(num_characters)
        self._response_format = response_format

    def audio(self, data: bytes) -> bytes:
        fields = {"audio": base64.b64encode(data).decode(), "response_format": self._response_format}
        return _named_event("speech.audio.delta", fields)

    def end(self, done: Done) -> bytes:
        return _named_event("speech.audio.done", {"usage": self._usage(done)})

    def failure(self, problem: Problem) -> bytes | None:
        return _named_event("speech.audio.error", error_body(problem, problem.status))


class OpenAiSpeech:
    def read(self, body: bytes, _path: Mapping[str, str], _query: Mapping[str, str]) -> OneShot:
        """Raises ProtocolViolation."""
        asked = decode(body, _Body)
        check_no_other_reference(asked)
        output = openai_format(asked.response_format or "mp3")
        return OneShot(
            text=asked.input,
            output=output,
            framing=_framing(asked, output),
            voice=asked.voice.id if isinstance(asked.voice, _VoiceId) else asked.voice or asked.speaker,
            speed=asked.speed,
            instruct=asked.instructions,
            seed=asked.seed,
            language=language_code(asked.language),
            is_normalized=asked.normalize is not False,
            pronunciations=asked.pronunciations,
            reference=reference_of(asked.ref_audio, asked.ref_text, is_sound_alone=asked.x_vector_only_mode),
        )

    def error_body(self, problem: Problem, status: HTTPStatus, _request_id: str) -> object:
        return error_body(problem, status)


def _framing(asked: _Body, output: OutputFormat) -> Framing:
    """vLLM-Omni streams `pcm` and `wav` alone, in events unless they are declined.

    Clients of other servers send `stream` too, and read what comes as audio: in any format, but these seldom.
    """
    if asked.stream_format == "sse":
        return SpeechEvents(len(asked.input))
    if asked.stream_format is None and asked.stream and asked.response_format in _STREAMED_BY_VLLM_OMNI:
        return OmniEvents(len(asked.input), asked.response_format)
    return PlainAudio(output)


def error_body(problem: Problem, status: HTTPStatus) -> dict[str, object]:
    if status is HTTPStatus.TOO_MANY_REQUESTS:
        kind = "rate_limit_error"
    else:
        kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    code = problem.name_of(_ERROR_NAMES)
    return {"error": {"message": problem.message, "type": kind, "param": problem.field, "code": code}}


def _named_event(name: str, fields: Mapping[str, object]) -> bytes:
    return f"event: {name}\n".encode() + _event({"type": name, **fields})


def _event(data: object) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"
