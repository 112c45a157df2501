"""Speech that is asked for in one request and answered in one: what is asked, and how the answer is put. Pure.

docs/compatibility.md says which vendors' requests become this; each has a module here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol, TypeVar

import msgspec

from voicegate.protocol.complaint import complaint
from voicegate.protocol.dialects.reading import speed_of
from voicegate.protocol.errors import ErrorCode, ProtocolViolation
from voicegate.protocol.formats import OutputFormat
from voicegate.protocol.messages import AlignmentItem, Done, End, Open, Pace, SessionMessage, Text

T = TypeVar("T")

CONTEXT: Final = "speech"  # of a conversation that has but one
# A client that asks for a whole file would not wait for as long as it plays; engines cap this. Lower makes files take
# longer, higher makes a client that hangs up waste more.
LEAD_MS: Final = 60_000
_PATH: Final = re.compile(r"`\$\.([\w.]+)")
_BYTES_PER_CHARACTER: Final = 4  # at most, in UTF-8


@dataclass(frozen=True, slots=True)
class Problem:
    """Why there is no speech, or no more of it."""

    code: ErrorCode
    message: str
    retry_after_ms: int | None = None
    field: str | None = None  # of the request, where one is to blame
    own_name: str | None = None  # of what `ErrorCode` has no code for

    def name_of(self, vendors_names: Mapping[str, str]) -> str:
        """As the vendor calls it, where it has a name for it."""
        name = self.code.value if self.own_name is None else self.own_name
        return vendors_names.get(name, name)

    @property
    def status(self) -> HTTPStatus:
        match self.code:
            case ErrorCode.OVERLOADED:
                return HTTPStatus.SERVICE_UNAVAILABLE
            case ErrorCode.TOO_MANY_CONTEXTS | ErrorCode.RATE_LIMITED:
                return HTTPStatus.TOO_MANY_REQUESTS
            case ErrorCode.UNAUTHORIZED:
                return HTTPStatus.UNAUTHORIZED
            case ErrorCode.ENGINE_FAILED | ErrorCode.EXPIRED | ErrorCode.SLOW_CONSUMER:
                return HTTPStatus.INTERNAL_SERVER_ERROR
            case _:
                return HTTPStatus.BAD_REQUEST


class Framing(Protocol):
    """The body of an answer, part by part. It may have state, so there is one for each answer."""

    @property
    def content_type(self) -> str: ...

    def audio(self, data: bytes) -> bytes: ...

    def words(self, items: Sequence[AlignmentItem]) -> bytes:
        """Comes before the audio of these words."""

    def end(self, done: Done) -> bytes: ...

    def failure(self, problem: Problem) -> bytes | None:
        """None: there is no word for it, and only an answer that breaks off tells."""


@dataclass(frozen=True, slots=True)
class PlainAudio:
    """Encoded audio, and nothing else."""

    output: OutputFormat

    @property
    def content_type(self) -> str:
        return self.output.content_type

    def audio(self, data: bytes) -> bytes:
        return data

    def words(self, items: Sequence[AlignmentItem]) -> bytes:
        return b""

    def end(self, done: Done) -> bytes:
        return b""

    def failure(self, problem: Problem) -> bytes | None:
        return None


@dataclass(frozen=True, slots=True)
class Reference:
    """A recording that a request brings, to be spoken with its voice."""

    recording: str  # a sound file in base64
    transcript: str  # what it says; empty: it is not known


@dataclass(frozen=True, slots=True)
class OneShot:
    text: str
    output: OutputFormat
    framing: Framing
    voice: str | None = None  # as the client calls it
    speed: float | None = None
    instruct: str | None = None
    seed: int | None = None
    language: str | None = None  # as `dialect.Effect` has it: of two, the first that is spoken
    is_normalized: bool = True
    pronunciations: Mapping[str, str] | None = None
    reference: Reference | None = None  # in place of `voice`

    def messages(self, voice: str | None, max_text_bytes: int) -> Iterator[SessionMessage]:
        """Messages that a native client would send; `voice`: as the engine calls it."""
        fields = {
            "context": CONTEXT,
            "voice": voice,
            "speed": speed_of(self.speed),
            "instruct": self.instruct,
            "seed": self.seed,
            "language": self.language,
            "normalize": self.is_normalized,
            "pronunciations": self.pronunciations or {},
        }
        # Read as a client's message is, which holds every field to its range.
        opening = convert(fields, Open)
        yield msgspec.structs.replace(opening, format=self.output.native, pace=Pace(lead_ms=LEAD_MS))
        part_chars = max(1, max_text_bytes // _BYTES_PER_CHARACTER)
        for start in range(0, len(self.text), part_chars):
            yield Text(CONTEXT, self.text[start : start + part_chars])
        yield End(CONTEXT)


class RequestViolation(ProtocolViolation):
    """A request that cannot be made sense of; `field`: the one to blame."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(ErrorCode.BAD_MESSAGE, message)
        self.field = field


def decode(body: bytes, kind: type[T]) -> T:
    """A JSON body; unknown fields are ignored. Raises RequestViolation."""
    if not body:
        raise RequestViolation("the request has no body, which is to be JSON")
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _violation(error, kind) from error
    except RecursionError as error:
        raise RequestViolation("the body is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestViolation(f"the body is not JSON: {error}") from error


def convert(value: object, kind: type[T]) -> T:
    """Raises RequestViolation."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _violation(error, kind) from error


def _violation(error: msgspec.ValidationError, kind: type[object]) -> RequestViolation:
    account = complaint(error, kind)
    path = _PATH.search(account)
    missing = re.search(r"missing required field `(\w+)`", account)
    field = path.group(1) if path else missing.group(1) if missing else None
    return RequestViolation(account, field)
