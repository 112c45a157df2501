"""Common parts of ElevenLabs' protocols: contexts, their text, and their audio with its alignment. Pure."""

import base64
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from msgspec import Struct
from msgspec import field as renamed

from voicegate.protocol import messages as wire
from voicegate.protocol.dialects.backlog import MAX_UNANSWERED_FLUSHES
from voicegate.protocol.dialects.char_times import CharClock, CharTimes, Told
from voicegate.protocol.dialects.dialect import Effect, FindVoice, Speech
from voicegate.protocol.dialects.reading import check_name, native_name, parted, speed_of
from voicegate.protocol.formats import OutputFormat

# Text of one context, until the session has said what it takes: as much as one message may be.
_MAX_TEXT_BYTES: Final = 1024 * 1024


class VoiceSettings(Struct, frozen=True):
    speed: float | None = None


class Message(Struct, frozen=True):
    text: str | None = None
    context_id: str | None = None
    camel_context_id: str | None = renamed(name="contextId", default=None)  # as the SDK's own type writes it
    flush: bool | None = None
    close_context: bool | None = None
    close_socket: bool | None = None
    voice_settings: VoiceSettings | None = None

    @property
    def context(self) -> str | None:
        return self.camel_context_id if self.context_id is None else self.context_id


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a socket, from its URL."""

    voice: str
    output: OutputFormat
    language: str | None = None
    is_normalized: bool = True
    is_auto: bool = False  # each message is a whole sentence, to be spoken without waiting for more
    # Times of characters count from the context's beginning rather than from where the last message's ended.
    counts_from_start: bool = False


@dataclass(eq=False, slots=True)
class Context:
    name: str  # the client's
    native: str
    num_text_bytes: int = 0  # that the session takes
    clock: CharClock = field(default_factory=CharClock)
    sent_ms: int = 0  # audio
    has_unflushed_text: bool = False  # as its client knows it, who is not told of our own flushes
    is_flushed: bool = True  # all text, as the session knows it
    is_flush_due: bool = False  # once one is answered
    unanswered_flushes: deque[int] = field(default_factory=deque)  # where in its text they are
    is_closing: bool = False


class Speaker:
    """Common to both protocols: contexts, their text, and their audio with its alignment."""

    def __init__(self, settings: Settings, find_voice: FindVoice) -> None:
        self.settings = settings
        self._find_voice = find_voice
        self._numbers = count()
        self.by_native: dict[str, Context] = {}
        self.max_text_bytes = _MAX_TEXT_BYTES  # of one context

    def open(self, name: str, voice_settings: VoiceSettings | None) -> tuple[Context, Effect]:
        check_name(name)
        context = Context(name, native_name(name, next(self._numbers)))
        self.by_native[context.native] = context
        message = wire.Open(
            context=context.native,
            voice=self._find_voice(self.settings.voice),
            format=self.settings.output.native,
            speed=speed_of(voice_settings.speed if voice_settings else None),
            language=self.settings.language,
            normalize=self.settings.is_normalized,
        )
        return context, message

    def say(self, context: Context, text: str) -> list[Effect]:
        context.has_unflushed_text = context.has_unflushed_text or not text.isspace()
        context.is_flushed = False
        is_whole = self.settings.is_auto and not text.isspace()
        text = parted(text) if is_whole else text
        self._note(context, text)
        return [wire.Text(context.native, text), *(self._flush(context) if is_whole else ())]

    def _note(self, context: Context, text: str) -> None:
        """Unless the session will refuse it, which counts as we do: then it is never spoken, and would only be kept."""
        num_text_bytes = context.num_text_bytes + len(text.encode())
        if num_text_bytes <= self.max_text_bytes:
            context.num_text_bytes = num_text_bytes
            context.clock.write(text)

    def flush(self, context: Context) -> list[Effect]:
        context.has_unflushed_text = False
        return self._flush(context)

    def _flush(self, context: Context) -> list[Effect]:
        """Clients know of no limit, and wait for no answer: of many the last is as good as all."""
        if context.is_flushed:
            return []
        if len(context.unanswered_flushes) >= MAX_UNANSWERED_FLUSHES:
            context.is_flush_due = True
            return []
        context.is_flushed, context.is_flush_due = True, False
        context.unanswered_flushes.append(context.clock.num_chars)
        return [wire.Flush(context.native)]

    def flushed(self, context: Context) -> tuple[dict[str, Any] | None, list[Effect]]:
        """Returns what is to be told, and what is to be done."""
        context.clock.reach(context.unanswered_flushes.popleft())
        effects = self._flush(context) if context.is_flush_due and not context.is_closing else []
        return self._times_alone(context.clock.take()), effects

    def audio(self, speech: Speech) -> dict[str, Any] | None:
        context = self.by_native[speech.context]
        context.sent_ms = speech.end_ms
        return self._fields(speech.audio, context.clock.take(speech.end_ms)) if speech.audio else None

    def late_alignment(self, message: wire.Alignment) -> dict[str, Any] | None:
        """Alignment of audio that was sent before its words were known."""
        context = self.by_native[message.context]
        context.clock.learn(message.items)
        return self._times_alone(context.clock.take(context.sent_ms))

    def last_alignment(self, context: Context, *, is_whole: bool) -> dict[str, Any] | None:
        """`is_whole`: all of its text was spoken."""
        if is_whole:
            context.clock.end()
        return self._times_alone(context.clock.take())

    def _times_alone(self, told: Told | None) -> dict[str, Any] | None:
        return None if told is None else self._fields(b"", told)

    def _fields(self, audio: bytes, told: Told | None) -> dict[str, Any]:
        later_ms = told.zero_ms if told is not None and self.settings.counts_from_start else 0
        return {
            "audio": base64.b64encode(audio).decode() if audio else None,
            "isFinal": False,
            "normalizedAlignment": None if told is None else _alignment(told.spoken, later_ms),
            "alignment": None if told is None else _alignment(told.written, later_ms),
        }


NO_AUDIO: Final = {"audio": None, "normalizedAlignment": None, "alignment": None}


def _alignment(times: CharTimes | None, later_ms: int) -> dict[str, Any] | None:
    if times is None:
        return None
    return {
        "chars": times.chars,
        "charStartTimesMs": [start_ms + later_ms for start_ms in times.starts_ms],
        "charDurationsMs": times.durations_ms,
    }
