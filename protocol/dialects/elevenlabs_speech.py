"""ElevenLabs' `POST /v1/text-to-speech/{voice_id}`, `/stream`, and both `/with-timestamps`. Pure."""

import base64
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final

import orjson
from msgspec import Struct

from voicegate.protocol.dialects.char_times import CharClock, CharTimes
from voicegate.protocol.dialects.format_names import elevenlabs_format
from voicegate.protocol.dialects.one_shot import Framing, OneShot, PlainAudio, Problem, decode
from voicegate.protocol.formats import OutputFormat
from voicegate.protocol.messages import AlignmentItem, Done

_DEFAULT_FORMAT: Final = "mp3_44100_128"
_ERROR_NAMES: Final = {
    "unauthorized": "invalid_api_key",
    "unknown_voice": "voice_not_found",
    "unknown_model": "model_not_found",
    "too_many_contexts": "too_many_concurrent_requests",
    "overloaded": "system_busy",
}


class _VoiceSettings(Struct, frozen=True):
    speed: float | None = None


class _Body(Struct, frozen=True):
    text: str
    voice_settings: _VoiceSettings | None = None
    seed: int | None = None
    language_code: str | None = None
    apply_text_normalization: str | None = None


class _Characters:
    """And when they sound, in seconds from the beginning, in one of ElevenLabs' two forms."""

    def __init__(self) -> None:
        self._chars: list[str] = []
        self._starts_s: list[float] = []
        self._ends_s: list[float] = []

    def add(self, times: CharTimes | None, zero_ms: int) -> None:
        if times is not None:
            self._chars += times.chars
            for start_ms, duration_ms in zip(times.starts_ms, times.durations_ms, strict=True):
                self._starts_s.append((zero_ms + start_ms) / 1000)
                self._ends_s.append((zero_ms + start_ms + duration_ms) / 1000)

    def take(self) -> dict[str, Sequence[object]]:
        """Takes what was added since."""
        alignment: dict[str, Sequence[object]] = {
            "characters": self._chars,
            "character_start_times_seconds": self._starts_s,
            "character_end_times_seconds": self._ends_s,
        }
        self._chars, self._starts_s, self._ends_s = [], [], []
        return alignment


class _Alignment:
    def __init__(self, text: str) -> None:
        self._clock = CharClock()
        self._clock.write(text)
        self._written, self._spoken = _Characters(), _Characters()

    def learn(self, items: Sequence[AlignmentItem]) -> None:
        self._clock.learn(items)
        self._add_known()

    def end(self) -> None:
        self._clock.reach(self._clock.num_chars)
        self._add_known()

    def _add_known(self) -> None:
        if (told := self._clock.take()) is not None:
            self._written.add(told.written, told.zero_ms)
            self._spoken.add(told.spoken, told.zero_ms)

    def take(self) -> dict[str, dict[str, Sequence[object]]]:
        """Takes what was learned since."""
        return {"alignment": self._written.take(), "normalized_alignment": self._spoken.take()}


class TimedLines:
    """A JSON object a line, each with audio and the characters that begin with it."""

    content_type = "application/x-ndjson"

    def __init__(self, _output: OutputFormat, text: str) -> None:
        self._alignment = _Alignment(text)

    def audio(self, data: bytes) -> bytes:
        return _line(data, self._alignment.take())

    def words(self, items: Sequence[AlignmentItem]) -> bytes:
        self._alignment.learn(items)
        return b""

    def end(self, done: Done) -> bytes:
        """Ends with what stands after the last word, if anything does."""
        self._alignment.end()
        rest = self._alignment.take()
        return _line(b"", rest) if rest["alignment"]["characters"] else b""

    def failure(self, problem: Problem) -> bytes | None:
        return None


def _line(audio: bytes, alignment: Mapping[str, Mapping[str, Sequence[object]]]) -> bytes:
    """Null where nothing begins: clients take empty lists for a fault."""
    told = {form: times if times["characters"] else None for form, times in alignment.items()}
    return orjson.dumps({"audio_base64": base64.b64encode(audio).decode(), **told}) + b"\n"


class TimedWhole:
    """One JSON object, written while the audio is made: its characters come last."""

    content_type = "application/json"

    def __init__(self, _output: OutputFormat, text: str) -> None:
        self._alignment = _Alignment(text)
        self._head = b'{"audio_base64":"'
        self._rest = b""  # of the audio: base64 takes three bytes at a time

    def audio(self, data: bytes) -> bytes:
        data = self._rest + data
        num_whole_bytes = len(data) // 3 * 3
        self._rest = data[num_whole_bytes:]
        return self._take_head() + base64.b64encode(data[:num_whole_bytes])

    def words(self, items: Sequence[AlignmentItem]) -> bytes:
        self._alignment.learn(items)
        return b""

    def end(self, done: Done) -> bytes:
        self._alignment.end()
        tail = orjson.dumps(self._alignment.take())
        return self._take_head() + base64.b64encode(self._rest) + b'",' + tail.removeprefix(b"{")

    def failure(self, problem: Problem) -> bytes | None:
        return None

    def _take_head(self) -> bytes:
        head, self._head = self._head, b""
        return head


class ElevenLabsSpeech:
    def __init__(self, framing: Callable[[OutputFormat, str], Framing] = lambda output, _: PlainAudio(output)) -> None:
        """`framing`: of an answer in a format, to a text."""
        self._framing = framing

    def read(self, body: bytes, path: Mapping[str, str], query: Mapping[str, str]) -> OneShot:
        """Raises ProtocolViolation."""
        asked = decode(body, _Body)
        output = elevenlabs_format(query.get("output_format", _DEFAULT_FORMAT))
        speed = None if asked.voice_settings is None else asked.voice_settings.speed
        return OneShot(
            text=asked.text,
            output=output,
            framing=self._framing(output, asked.text),
            voice=path["voice_id"],
            speed=speed,
            seed=asked.seed,
            language=asked.language_code,
            is_normalized=asked.apply_text_normalization != "off",
        )

    def error_body(self, problem: Problem, status: HTTPStatus, request_id: str) -> object:
        kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request"
        name = problem.name_of(_ERROR_NAMES)
        detail = {"type": kind, "status": name, "message": problem.message, "request_id": request_id}
        return {"detail": detail}
