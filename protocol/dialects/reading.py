"""Reading of frames for all dialects: JSON in and out, checked against a type; context ids; statuses of errors.
Pure."""

from collections.abc import Mapping
from math import isnan
from typing import Any, Final, TypeVar

import msgspec
import orjson

from voicegate.protocol.complaint import complaint
from voicegate.protocol.dialects.dialect import Reply
from voicegate.protocol.errors import ErrorCode, ProtocolViolation

T = TypeVar("T")

MAX_NAME_CHARS: Final = 256
# Higher -> an error may be larger than the 1 MiB at which clients hang up.
_SHOWN_NAME_CHARS: Final = 4096
_NATIVE_NAME_CHARS: Final = 48
_SPEEDS: Final = (0.5, 2.0)  # of `open`
# As vLLM-Omni's clients name them; "Auto" asks for none.
_LANGUAGES: Final[Mapping[str, str | None]] = {
    "auto": None,
    "chinese": "zh",
    "english": "en",
    "french": "fr",
    "german": "de",
    "italian": "it",
    "japanese": "ja",
    "korean": "ko",
    "portuguese": "pt",
    "russian": "ru",
    "spanish": "es",
}
_BAD_REQUEST: Final = 400
_STATUSES: Final[Mapping[str, int]] = {
    ErrorCode.UNAUTHORIZED.value: 401,
    ErrorCode.UNKNOWN_VOICE.value: 404,
    ErrorCode.UNKNOWN_CONTEXT.value: 404,
    ErrorCode.EXPIRED.value: 408,
    ErrorCode.TOO_MANY_CONTEXTS.value: 429,
    ErrorCode.RATE_LIMITED.value: 429,
    ErrorCode.OVERLOADED.value: 503,
    ErrorCode.ENGINE_FAILED.value: 500,
}


def read(raw: str | bytes, kind: type[T]) -> T:
    """A JSON object as `kind`; fields that it does not know are ignored. Raises ProtocolViolation."""
    if isinstance(raw, bytes):
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, "a client sends text messages only")
    return convert(load(raw), kind)


def load(raw: str) -> dict[str, Any]:
    """Raises ProtocolViolation."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, "a message is a JSON object")
    return value


def convert(value: Mapping[str, Any], kind: type[T]) -> T:
    """Raises ProtocolViolation."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, complaint(error, kind)) from error


def reply(message: Mapping[str, Any]) -> Reply:
    return Reply(orjson.dumps(message).decode())


def check_name(name: str) -> None:
    """It is sent back with every message of its context. Raises ProtocolViolation."""
    if len(name) > MAX_NAME_CHARS:
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, f"context_id is longer than {MAX_NAME_CHARS} characters")


def shown_name(name: str | None) -> str | None:
    """As an error may carry it: one that no client would know again is left out, or the error outgrows its cause."""
    return None if name is None or len(name) > _SHOWN_NAME_CHARS else name


def native_name(name: str, number: int) -> str:
    """Unique by its number, and known again in the log."""
    shown = "".join(char if char.isprintable() else "?" for char in name[:_NATIVE_NAME_CHARS])
    return f"{shown}#{number}"


def parted(text: str) -> str:
    """A whole sentence, which frameworks send without the blank between it and the next."""
    return text if text[-1].isspace() else f"{text} "


def speed_of(speed: float | None) -> float:
    """The nearest that a context may have."""
    return 1.0 if speed is None or isnan(speed) else min(max(speed, _SPEEDS[0]), _SPEEDS[1])


def language_code(language: str | None) -> str | None:
    """The code of a language that is named by a word, or by a code already."""
    return None if language is None else _LANGUAGES.get(language.lower(), language)


def status_of(code: str) -> int:
    """As HTTP would say it."""
    return _STATUSES.get(code, _BAD_REQUEST)
