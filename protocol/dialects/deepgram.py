"""Deepgram: `/v1/speak`, one voice's speech a socket, turn by turn. Pure.

Audio frames have no names, so nothing of a turn follows the `Cleared` that ended it, and one turn is heard to its end
before the next begins. A turn is a context of its own: between turns the socket takes no room in the engine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Literal

from msgspec import Struct

from voicegate.protocol import messages as wire
from voicegate.protocol.dialects.backlog import Backlog
from voicegate.protocol.dialects.dialect import Effect, FindVoice, Hangup, Reply, Speech
from voicegate.protocol.dialects.reading import native_name, read, reply
from voicegate.protocol.errors import ErrorCode, ProtocolViolation
from voicegate.protocol.formats import OutputFormat
from voicegate.protocol.messages import ServerMessage

# As many as Deepgram takes in a minute; a session has its own limit, far above.
_MAX_UNANSWERED_FLUSHES: Final = 20


class _Message(Struct, frozen=True):
    type: Literal["Speak", "Flush", "Clear", "Close", "KeepAlive"]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a socket, from its URL."""

    voice: str
    output: OutputFormat
    speed: float = 1.0


@dataclass(slots=True)
class _Turn:
    native: str
    num_unanswered: int = 0  # flushes
    has_new_text: bool = False  # behind the last of them
    is_ending: bool = False
    is_spoken: bool = False  # whole, before it was ended


class Deepgram:
    def __init__(self, settings: Settings, find_voice: FindVoice) -> None:
        self._settings = settings
        self._find_voice = find_voice
        self._numbers = count()
        self._sequence_ids = count()
        self._turn: _Turn | None = None
        self._backlog: Backlog[_Message] = Backlog()  # what came while a turn ends
        self._has_failed = False  # the rest of its turn is nothing to speak
        self._is_closing = False

    def output(self, context: str) -> OutputFormat:
        return self._settings.output

    # --- from the client ----------------------------------------------------------------------------------

    def receive(self, raw: str | bytes) -> Sequence[Effect]:
        if self._is_closing:
            return []
        return self._answer(lambda: read(raw, _Message))

    def _answer(self, message: Callable[[], _Message]) -> list[Effect]:
        try:
            return self._take(message())
        except ProtocolViolation as violation:
            return [_warning(violation.code.value, violation.message)]

    def _take(self, message: _Message) -> list[Effect]:
        match message.type:
            case "Clear":
                return self._clear()
            case "KeepAlive":
                return []
            case _ if self._turn is not None and self._turn.is_ending:
                if not self._backlog.put(message, len(message.text)):
                    raise ProtocolViolation(ErrorCode.RATE_LIMITED, "too much text while a turn ends; send it later")
                return []
            case "Speak":
                return self._speak(message.text)
            case "Flush":
                return self._flush()
            case "Close":
                return self._close()

    def _speak(self, text: str) -> list[Effect]:
        if not text or self._has_failed:
            return []
        effects: list[Effect] = []
        if self._turn is None:
            self._turn = _Turn(native_name("turn", next(self._numbers)))
            opening = wire.Open(
                context=self._turn.native,
                voice=self._find_voice(self._settings.voice),
                format=self._settings.output.native,
                speed=self._settings.speed,
            )
            effects.append(opening)
        self._turn.has_new_text = True
        return [*effects, wire.Text(self._turn.native, text)]

    def _flush(self) -> list[Effect]:
        self._has_failed = False
        if self._turn is None:
            return [self._numbered("Flushed")]
        if self._turn.num_unanswered >= _MAX_UNANSWERED_FLUSHES:
            text = f"{_MAX_UNANSWERED_FLUSHES} flushes are unanswered; this one is left out"
            raise ProtocolViolation(ErrorCode.RATE_LIMITED, text)
        self._turn.num_unanswered += 1
        self._turn.has_new_text = False
        return [wire.Flush(self._turn.native)]

    def _clear(self) -> list[Effect]:
        turn, self._turn = self._turn, None
        self._has_failed = False
        self._backlog.clear()
        cancel: list[Effect] = [] if turn is None else [wire.Cancel(turn.native)]
        return [*cancel, self._numbered("Cleared")]

    def _close(self) -> list[Effect]:
        """Closes after what was said so far is heard."""
        self._is_closing = True
        return [Hangup()] if self._turn is None else self._end_turn(self._turn)

    # --- from the session ---------------------------------------------------------------------------------

    def speak(self, speech: Speech) -> Sequence[Effect]:
        is_heard = self._turn is not None and self._turn.native == speech.context
        return [Reply(speech.audio)] if is_heard and speech.audio else []

    def word(self, message: ServerMessage) -> Sequence[Effect]:
        match message:
            case wire.Ready():
                return [_metadata(message)]
            case wire.Error(context=str(native)) if self._turn is None or native != self._turn.native:
                return []
            case wire.Error() if message.fatal and self._turn is not None:
                # A turn that idled or lived for too long has ended as if it had been flushed. And a server that goes
                # away ends turns with nothing to say any more.
                is_gone = self._turn.is_spoken and message.code == ErrorCode.OVERLOADED.value
                is_failure = message.code != ErrorCode.EXPIRED.value and not is_gone
                self._has_failed = is_failure and self._turn.has_new_text
                return [*([_error(message)] if is_failure else []), *self._turn_ended(self._turn)]
            case wire.Error():
                is_of_flush = message.code == ErrorCode.RATE_LIMITED.value and isinstance(message.context, str)
                if is_of_flush and self._turn is not None:
                    self._turn.num_unanswered -= 1  # refused: this is its answer
                return [_warning(message.code, message.message)]
            case wire.Flushed(context=native) | wire.Done(context=native) | wire.Cancelled(context=native):
                if self._turn is None or native != self._turn.native:
                    return []
                return self._flushed(self._turn) if isinstance(message, wire.Flushed) else self._turn_ended(self._turn)
            case _:
                return []

    def _flushed(self, turn: _Turn) -> list[Effect]:
        if turn.num_unanswered > 1 or turn.has_new_text:
            turn.num_unanswered -= 1
            return [self._numbered("Flushed")]
        if turn.is_ending:
            return []
        turn.is_spoken = True
        return self._end_turn(turn)

    def _end_turn(self, turn: _Turn) -> list[Effect]:
        turn.is_ending = True
        return [wire.End(turn.native)]

    def _turn_ended(self, turn: _Turn) -> list[Effect]:
        """Each of its flushes has its answer; then comes what came meanwhile."""
        self._turn = None
        effects: list[Effect] = [self._numbered("Flushed") for _ in range(turn.num_unanswered)]
        if self._is_closing:
            return [*effects, Hangup()]
        while len(self._backlog) and not self._is_turn_ending():
            effects += self._answer(self._backlog.take)
        return effects

    def _is_turn_ending(self) -> bool:
        return self._turn is not None and self._turn.is_ending

    def _numbered(self, kind: Literal["Flushed", "Cleared"]) -> Reply:
        return reply({"type": kind, "sequence_id": next(self._sequence_ids)})


def _metadata(ready: wire.Ready) -> Reply:
    fields = {"request_id": ready.session, "model_name": ready.model, "model_version": str(ready.protocol)}
    return reply({"type": "Metadata", **fields, "model_uuid": ready.model})


def _warning(code: str, text: str) -> Reply:
    """Clients read the one or the other name of the text."""
    return reply({"type": "Warning", "code": code, "description": text, "warn_msg": text})


def _error(message: wire.Error) -> Reply:
    fields: dict[str, Any] = {"code": message.code, "description": message.message, "err_msg": message.message}
    return reply({"type": "Error", **fields})
