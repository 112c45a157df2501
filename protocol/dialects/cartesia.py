"""Cartesia: `/tts/websocket`, requests and their contexts. Pure."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final
from uuid import uuid4

from msgspec import Struct
from msgspec import field as renamed
from msgspec.json import encode

from voicegate.protocol import messages as wire
from voicegate.protocol.dialects.backlog import MAX_UNANSWERED_FLUSHES, Backlog, RecentNames
from voicegate.protocol.dialects.dialect import Effect, FindVoice, Reply, Speech
from voicegate.protocol.dialects.format_names import cartesia_format
from voicegate.protocol.dialects.reading import (
    check_name,
    convert,
    load,
    native_name,
    parted,
    reply,
    shown_name,
    speed_of,
    status_of,
)
from voicegate.protocol.errors import ErrorCode, ProtocolViolation
from voicegate.protocol.formats import OutputFormat
from voicegate.protocol.messages import ServerMessage

_PARTIAL: Final = 206
_OK: Final = 200
_SERVER_ERROR: Final = 500
_UNAVAILABLE: Final = 503
# Words of the old API for speeds.
_SPEED_WORDS: Final = {"slowest": 0.6, "slow": 0.8, "normal": 1.0, "fast": 1.25, "fastest": 1.5}
_BUSY: Final = (ErrorCode.OVERLOADED.value, ErrorCode.TOO_MANY_CONTEXTS.value)
# Flushes of our own making carry none of the client's numbers.
_SILENT: Final = ""


class _Format(Struct, frozen=True):
    container: str = "raw"
    encoding: str | None = None
    sample_rate: int = 44_100
    bit_rate: int | None = None


class _Voice(Struct, frozen=True):
    id: str | None = None


class Generation(Struct, frozen=True):
    speed: float | None = None


class _Request(Struct, frozen=True, omit_defaults=True):
    context_id: str | None = None
    transcript: str = ""
    voice: _Voice | str | None = None
    output_format: _Format = _Format()
    is_continued: bool | None = renamed(name="continue", default=False)
    flush: bool | None = False
    cancel: bool | None = False
    max_buffer_delay_ms: int | None = None
    add_timestamps: bool | None = False
    generation_config: Generation | None = None
    speed: str | float | None = None
    language: str | None = None
    locale: str | None = None
    normalization: str | None = None


@dataclass(slots=True)
class _Context:
    name: str  # the client's
    native: str
    output: OutputFormat
    has_timestamps: bool
    num_flushes: int = 0  # the client's
    num_flushed: int = 0
    num_unanswered_flushes: int = 0  # ours too
    is_flush_due: bool = False  # one of ours, once another is answered
    has_ended: bool = False  # its input
    # Behind many unanswered flushes, of which each has its answer; or behind the end: requests of a next context.
    waiting: Backlog[_Request] = field(default_factory=Backlog)

    @property
    def takes_flush(self) -> bool:
        return self.num_unanswered_flushes < MAX_UNANSWERED_FLUSHES


class Cartesia:
    def __init__(self, find_voice: FindVoice, new_name: Callable[[], str] = lambda: str(uuid4())) -> None:
        """`new_name`: of contexts that their clients do not name, such as no client comes upon for one of its own."""
        self._find_voice = find_voice
        self._new_name = new_name
        self._numbers = count()
        self._by_name: dict[str, _Context] = {}
        self._by_native: dict[str, _Context] = {}
        self._failed = RecentNames()  # and whose input has not ended

    def output(self, context: str) -> OutputFormat:
        return self._by_native[context].output

    # --- from the client ----------------------------------------------------------------------------------

    def receive(self, raw: str | bytes) -> Sequence[Effect]:
        name: str | None = None
        try:
            if isinstance(raw, bytes):
                raise ProtocolViolation(ErrorCode.BAD_MESSAGE, "a client sends text messages only")
            value = load(raw)
            name = value["context_id"] if isinstance(value.get("context_id"), str) else None
            return self._take(convert(value, _Request))
        except ProtocolViolation as violation:
            return [self._violation(violation, name)]

    def _take(self, request: _Request) -> list[Effect]:
        """Raises ProtocolViolation."""
        name = request.context_id
        context = None if name is None else self._by_name.get(name)
        if name is not None and name in self._failed:
            if request.cancel or not request.is_continued:
                self._failed.discard(name)
            return []  # the rest of what failed is nothing to speak
        if request.cancel:
            return [] if context is None else self._cancel(context)
        if context is None:
            context, opening = self._open(request)
            return [opening, *self._say(context, request)]
        if context.has_ended or len(context.waiting) or (request.flush and not context.takes_flush):
            if not context.waiting.put(request, len(encode(request))):
                raise ProtocolViolation(ErrorCode.RATE_LIMITED, "too much text waits for this context; send it later")
            return []
        return self._say(context, request)

    def _open(self, request: _Request) -> tuple[_Context, wire.Open]:
        number = next(self._numbers)
        name = self._new_name() if request.context_id is None else request.context_id
        check_name(name)
        asked = request.output_format
        if asked.container != "raw":
            text = f"output_format.container is {asked.container[:20]!r}; a socket carries raw audio: it must be raw"
            raise ProtocolViolation(ErrorCode.BAD_MESSAGE, text)
        output = cartesia_format(asked.container, asked.encoding, asked.sample_rate, asked.bit_rate)
        context = _Context(name, native_name(name, number), output, has_timestamps=bool(request.add_timestamps))
        self._by_name[name] = self._by_native[context.native] = context
        voice = request.voice.id if isinstance(request.voice, _Voice) else request.voice
        opening = wire.Open(
            context=context.native,
            voice=None if voice is None else self._find_voice(voice),
            format=output.native,
            speed=speed_of(asked_speed(request.speed, request.generation_config)),
            language=languages_of(request.locale, request.language),
            normalize=is_normalized(request.normalization),
            max_buffer_delay_ms=_buffer_delay_ms(request.max_buffer_delay_ms),
        )
        return context, opening

    def _say(self, context: _Context, request: _Request) -> list[Effect]:
        effects: list[Effect] = []
        if request.transcript:
            text = parted(request.transcript) if _is_whole(request) else request.transcript
            effects.append(wire.Text(context.native, text))
        if request.flush:
            context.num_flushes += 1
            effects.append(_flush(context, str(context.num_flushes)))
        elif _is_whole(request):
            effects += _flush_silently(context)
        if not request.is_continued or request.context_id is None:  # no one could continue that one
            context.has_ended = True
            effects.append(wire.End(context.native))
        return effects

    def _cancel(self, context: _Context) -> list[Effect]:
        context.has_ended = True
        context.waiting.clear()
        return [wire.Cancel(context.native)]

    # --- from the session ---------------------------------------------------------------------------------

    def speak(self, speech: Speech) -> Sequence[Effect]:
        if not speech.audio:
            return []
        context = self._by_native[speech.context]
        fields: dict[str, Any] = {"data": base64.b64encode(speech.audio).decode(), "step_time": 0.0}
        return [_partial("chunk", context, fields)]

    def word(self, message: ServerMessage) -> Sequence[Effect]:
        context = self._by_native.get(getattr(message, "context", ""))
        match message:
            case wire.Error() if context is None and not isinstance(message.context, str):
                return [_error(message.code, message.message, None, None)]
            case _ if context is None:
                return []
            case wire.Alignment(items=items) if context.has_timestamps and items:
                return [_partial("timestamps", context, {"word_timestamps": word_timestamps(items)})]
            case wire.Flushed(id=flush_id):
                return self._flushed(context, flush_id)
            case wire.Done() | wire.Cancelled():
                done = reply({"type": "done", "context_id": context.name, "done": True, "status_code": _OK})
                return [done, *self._forget(context)]
            case wire.Error():
                told = _error(message.code, message.message, context.name, context.native, is_over=message.fatal)
                if not message.fatal:
                    return [told]
                if not context.has_ended and message.code != ErrorCode.EXPIRED.value:
                    self._failed.add(context.name)
                return [told, *self._forget(context)]
            case _:
                return []

    def _flushed(self, context: _Context, flush_id: str) -> list[Effect]:
        context.num_unanswered_flushes -= 1
        effects: list[Effect] = []
        if flush_id != _SILENT:
            context.num_flushed += 1
            fields = {"flush_done": True, "flush_id": int(flush_id)}
            effects.append(reply({**_head("flush_done", context), **fields}))
        while len(context.waiting) and context.takes_flush and not context.has_ended:
            effects += self._say(context, context.waiting.take())
        return effects + _flush_silently(context) if context.is_flush_due and not context.has_ended else effects

    def _forget(self, context: _Context) -> list[Effect]:
        """And take what came behind its end."""
        del self._by_native[context.native]
        if self._by_name.get(context.name) is context:
            del self._by_name[context.name]
        effects: list[Effect] = []
        while len(context.waiting):
            effects += self._retake(context.waiting.take())
        return effects

    def _retake(self, request: _Request) -> list[Effect]:
        try:
            return self._take(request)
        except ProtocolViolation as violation:
            return [self._violation(violation, request.context_id)]

    def _violation(self, violation: ProtocolViolation, name: str | None) -> Reply:
        """One that opens nothing has nothing behind it; one amid a context leaves that as it is."""
        shown = shown_name(name)
        is_over = name is not None and name not in self._by_name
        return _error(violation.code.value, violation.message, shown, shown, is_over=is_over)


def _is_whole(request: _Request) -> bool:
    """It is not to wait for others."""
    return request.max_buffer_delay_ms == 0 and bool(request.is_continued) and bool(request.transcript.strip())


def _flush(context: _Context, flush_id: str) -> wire.Flush:
    context.num_unanswered_flushes += 1
    context.is_flush_due = False
    return wire.Flush(context.native, flush_id)


def _flush_silently(context: _Context) -> list[Effect]:
    """No one waits for an answer, so of many the last is as good as all."""
    if context.takes_flush:
        return [_flush(context, _SILENT)]
    context.is_flush_due = True
    return []


def languages_of(locale: str | None, language: str | None) -> str | None:
    """As `Effect` has them."""
    return ",".join(filter(None, (locale, language))) or None


def asked_speed(speed: str | float | None, config: Generation | None) -> float | None:
    """The speed in the configuration, or as the old API has it."""
    if config is not None and config.speed is not None:
        return config.speed
    return _SPEED_WORDS.get(speed) if isinstance(speed, str) else speed


def is_normalized(normalization: str | None) -> bool:
    """It may also name a locale, of which the language is asked for anyway."""
    return normalization != "off"


def _buffer_delay_ms(delay_ms: int | None) -> int | None:
    """0 means that each request is whole (`_is_whole`)."""
    return min(delay_ms, wire.MAX_BUFFER_DELAY_MS) if delay_ms is not None and delay_ms > 0 else None


def word_timestamps(items: Sequence[wire.AlignmentItem]) -> dict[str, Any]:
    return {
        "words": [item.text.strip() for item in items],
        "start": [item.start_ms / 1000 for item in items],
        "end": [item.end_ms / 1000 for item in items],
    }


def _head(kind: str, context: _Context) -> dict[str, Any]:
    return {"type": kind, "context_id": context.name, "done": False, "status_code": _PARTIAL}


def _partial(kind: str, context: _Context, fields: dict[str, Any]) -> Reply:
    flush = {"flush_id": context.num_flushed + 1} if context.num_flushes else {}
    return reply({**_head(kind, context), **fields, **flush})


def _error(code: str, text: str, name: str | None, request_id: str | None, *, is_over: bool = False) -> Reply:
    """In the shapes of all versions: up to 2025-04-16 it is told in a string `error`, and since then in four fields.

    `is_over`: nothing of the context follows. Only a fault of the client's own says so in `done`, because another try
    meets it again. LiveKit's packages take true for an end in peace; of false, the one in JavaScript waits for more up
    to status 499, and tries again from 500 on. So a server without room says 503.
    """
    is_busy = code in _BUSY
    status = _UNAVAILABLE if is_busy else status_of(code)
    title = code.replace("_", " ").capitalize()
    return reply(
        {
            "type": "error",
            "context_id": name,
            "done": is_over and status < _SERVER_ERROR,
            "status_code": status,
            "error_code": "concurrency_limited" if is_busy else code,
            "title": title,
            "message": text,
            "error": f"{title}: {text}",
            "request_id": request_id or "",
        }
    )
