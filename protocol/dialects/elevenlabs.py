"""ElevenLabs: `stream-input`, one context a socket, and `multi-stream-input`, many. Pure.

Barge-in there is `close_context`: right behind a flush it means that the rest is to be heard, else that nothing is, and
when it comes again too. It means all that is heard under its name.
"""

from collections.abc import Sequence
from typing import Any, Final

from voicegate.protocol import messages as wire
from voicegate.protocol.dialects.backlog import RecentNames
from voicegate.protocol.dialects.dialect import Effect, FindVoice, Hangup, Reply, Speech
from voicegate.protocol.dialects.elevenlabs_speaker import NO_AUDIO, Context, Message, Settings, Speaker
from voicegate.protocol.dialects.reading import read, reply, shown_name, status_of
from voicegate.protocol.errors import CloseCode, ErrorCode, ProtocolViolation
from voicegate.protocol.formats import OutputFormat
from voicegate.protocol.messages import ServerMessage

DEFAULT_FORMAT: Final = "mp3_44100_128"
IDLE_S: Final = 20  # where the URL does not say (`inactivity_timeout`)
MAX_IDLE_S: Final = 180
_DEFAULT_CONTEXT: Final = "default"


class MultiStream:
    """`multi-stream-input`. A name may be used again once its context is closed, also while that one is still heard.

    One that failed takes no more text until it is closed: the rest of a sentence alone is nothing to speak.
    """

    def __init__(self, settings: Settings, find_voice: FindVoice) -> None:
        self._speaker = Speaker(settings, find_voice)
        self._open: dict[str, Context] = {}  # by name: those that take text
        self._closing: dict[str, list[Context]] = {}  # by name: those that were closed, while they are to be heard
        self._failed = RecentNames()  # and not closed yet
        self._is_ending = False

    def output(self, context: str) -> OutputFormat:
        return self._speaker.settings.output

    def receive(self, raw: str | bytes) -> Sequence[Effect]:
        if self._is_ending:
            return []
        name: str | None = None
        try:
            message = read(raw, Message)
            name = _DEFAULT_CONTEXT if message.context is None else message.context
            return self._take(message, name)
        except ProtocolViolation as violation:
            return [_error(violation.message, violation.code.value, shown_name(name))]

    def _take(self, message: Message, name: str) -> list[Effect]:
        if message.close_socket:
            return self._close_socket()
        if name in self._failed:
            if message.close_context:  # of that one: others of its name may be heard still
                self._failed.discard(name)
            return []
        effects = self._say(message, name)
        return effects + self._close(name) if message.close_context else effects

    def _say(self, message: Message, name: str) -> list[Effect]:
        effects: list[Effect] = []
        context = self._open.get(name)
        if message.text == "" and context is not None and not (message.flush or message.close_context):
            effects.append(wire.Text(context.native, ""))  # it keeps its context open (`inactivity_timeout`)
        if message.text:
            if context is None:
                context, opening = self._speaker.open(name, message.voice_settings)
                self._open[name] = context
                effects.append(opening)
                # A blank opens a context by convention, and is none of its text.
                text = "" if message.text.isspace() else message.text
            else:
                text = message.text
            if text:
                effects += self._speaker.say(context, text)
        # Text that comes with the end of its context is to be heard: an interruption has none.
        is_last = bool(message.close_context and message.text and not message.text.isspace())
        if context is not None and (message.flush or is_last):
            effects += self._speaker.flush(context)
        return effects

    def _close(self, name: str) -> list[Effect]:
        context = self._open.pop(name, None)
        if context is not None and not context.has_unflushed_text:
            self._closing.setdefault(name, []).append(context)
            return [_end_of(context)]
        interrupted = self._closing.pop(name, []) + ([] if context is None else [context])
        for each in interrupted:
            each.is_closing = True
        return [wire.Cancel(each.native) for each in interrupted]

    def _close_socket(self) -> list[Effect]:
        """Those that were flushed are heard to their end first."""
        self._is_ending = True
        effects = [_end_of(context) for context in self._open.values()]
        self._open.clear()
        return [*effects, *self._hang_up_if_over()]

    def _hang_up_if_over(self) -> list[Effect]:
        return [Hangup()] if self._is_ending and not self._speaker.by_native else []

    def speak(self, speech: Speech) -> Sequence[Effect]:
        return self._tell(speech.context, self._speaker.audio(speech))

    def word(self, message: ServerMessage) -> Sequence[Effect]:
        match message:
            case wire.Ready(limits=limits):
                self._speaker.max_text_bytes = limits.context_text_bytes
            case wire.Alignment() if message.context in self._speaker.by_native:
                return self._tell(message.context, self._speaker.late_alignment(message))
            case wire.Flushed(context=native) if native in self._speaker.by_native:
                fields, effects = self._speaker.flushed(self._speaker.by_native[native])
                return [*self._tell(native, fields), *effects]
            case wire.Done(context=native) | wire.Cancelled(context=native):
                return self._end(native, is_whole=isinstance(message, wire.Done))
            case wire.Error(context=str(native)) if message.fatal:
                # One that lived its time, or was idle for too long, ends as one that was closed.
                is_failure = message.code != ErrorCode.EXPIRED.value
                return [*(self._fail(message, native) if is_failure else ()), *self._end(native, is_whole=False)]
            case wire.Error(context=str(native)):
                return self._refuse(message, native)
            case wire.Error():
                return [_error(message.message, message.code, None)]
            case _:
                pass
        return []

    def _fail(self, message: wire.Error, native: str) -> list[Effect]:
        context = self._speaker.by_native.get(native)
        if context is not None and self._open.get(context.name) is context:
            self._failed.add(context.name)
        return self._refuse(message, native)

    def _refuse(self, message: wire.Error, native: str) -> list[Effect]:
        """Nothing of contexts that have ended: their clients know."""
        context = self._speaker.by_native.get(native)
        return [] if context is None else [_error(message.message, message.code, context.name)]

    def _end(self, native: str, *, is_whole: bool) -> list[Effect]:
        context = self._speaker.by_native.pop(native, None)
        if context is None:
            return []
        if self._open.get(context.name) is context:
            del self._open[context.name]
        if context in (closing := self._closing.get(context.name, [])):
            closing.remove(context)
            if not closing:
                del self._closing[context.name]
        rest = self._last_words(context, is_whole=is_whole)
        return [*rest, _named(context.name, {"isFinal": True, **NO_AUDIO}), *self._hang_up_if_over()]

    def _last_words(self, context: Context, *, is_whole: bool) -> list[Effect]:
        times = self._speaker.last_alignment(context, is_whole=is_whole)
        return [] if times is None else [_named(context.name, times)]

    def _tell(self, native: str, fields: dict[str, Any] | None) -> list[Effect]:
        return [] if fields is None else [_named(self._speaker.by_native[native].name, fields)]


class SingleStream:
    """`stream-input`. What ends its one context ends the socket, which its clients wait for."""

    def __init__(self, settings: Settings, find_voice: FindVoice) -> None:
        self._speaker = Speaker(settings, find_voice)
        self._context: Context | None = None
        self._has_ended = False  # the text

    def output(self, context: str) -> OutputFormat:
        return self._speaker.settings.output

    def receive(self, raw: str | bytes) -> Sequence[Effect]:
        if self._has_ended:
            return []
        try:
            return self._take(read(raw, Message))
        except ProtocolViolation as violation:
            return self._fail(violation.message, violation.code.value)

    def _take(self, message: Message) -> list[Effect]:
        effects: list[Effect] = []
        text = message.text
        if self._context is None:
            self._context, opening = self._speaker.open(_DEFAULT_CONTEXT, message.voice_settings)
            effects.append(opening)
            text = None if text and text.isspace() else text
        if text:
            effects += self._speaker.say(self._context, text)
        if message.flush:
            effects += self._speaker.flush(self._context)
        if text == "" and not message.flush:
            self._has_ended = self._context.is_closing = True
            effects.append(wire.End(self._context.native))
        return effects

    def speak(self, speech: Speech) -> Sequence[Effect]:
        return _told(self._speaker.audio(speech))

    def word(self, message: ServerMessage) -> Sequence[Effect]:
        match message:
            case wire.Ready(limits=limits):
                self._speaker.max_text_bytes = limits.context_text_bytes
            case wire.Alignment() if message.context in self._speaker.by_native:
                return _told(self._speaker.late_alignment(message))
            case wire.Flushed(context=native) if native in self._speaker.by_native:
                fields, effects = self._speaker.flushed(self._speaker.by_native[native])
                return [*_told(fields), *effects]
            case wire.Done(context=native) | wire.Cancelled(context=native):
                return self._end(native, is_whole=isinstance(message, wire.Done))
            case wire.Error() if message.fatal:
                return self._fail(message.message, message.code)
            case wire.Error(context=str()):  # text that was not taken
                return self._fail(message.message, message.code)
            case _:
                pass
        return []

    def _end(self, native: str, *, is_whole: bool) -> list[Effect]:
        context = self._speaker.by_native.pop(native)
        rest = self._speaker.last_alignment(context, is_whole=is_whole)
        return [*_told(rest), reply({"isFinal": True, **NO_AUDIO}), Hangup()]

    def _fail(self, text: str, code: str) -> list[Effect]:
        self._has_ended = True
        status = status_of(code)
        fields = {"message": text, "error": code, "code": status}
        return [reply(fields), Hangup(CloseCode.POLICY, code)]


def _end_of(context: Context) -> Effect:
    context.is_closing = True
    return wire.Cancel(context.native) if context.has_unflushed_text else wire.End(context.native)


def _told(fields: dict[str, Any] | None) -> list[Effect]:
    return [] if fields is None else [reply(fields)]


def _named(name: str, fields: dict[str, Any]) -> Reply:
    """Clients read the one or the other."""
    return reply({**fields, "contextId": name, "context_id": name})


def _error(text: str, code: str, name: str | None) -> Reply:
    fields = {"error": code, "message": text, "code": status_of(code)}
    return reply(fields) if name is None else _named(name, fields)
