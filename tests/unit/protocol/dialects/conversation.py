"""For tests of dialects: what one says to a session and to its client, in short; and messages of a session."""

import base64
from collections.abc import Sequence
from typing import Any

import orjson
from msgspec import UNSET

from voicegate.protocol import messages as wire
from voicegate.protocol.dialects.dialect import Dialect, Effect, Hangup, Reply, Speech
from voicegate.protocol.messages import ServerMessage

READY = wire.Ready("session-1", "", "fake", ("anna",), "anna", ("auto",), wire.Limits(4, 1000, 10_000, 3000, 0))


def find_anna(name: str) -> str | None:
    return name if name == "anna" else None


def said(dialect: Dialect, *messages: dict[str, Any]) -> list[Any]:
    """Outcome of the client's frames."""
    return [effect for message in messages for effect in shown(dialect.receive(orjson.dumps(message).decode()))]


def told(dialect: Dialect, *messages: ServerMessage | Speech) -> list[Any]:
    """Outcome of the session's messages."""
    effects: list[Any] = []
    for message in messages:
        effects += shown(dialect.speak(message) if isinstance(message, Speech) else dialect.word(message))
    return effects


def shown(effects: Sequence[Effect]) -> list[Any]:
    return [_shown(effect) for effect in effects]


def _shown(effect: Effect) -> Any:
    match effect:
        case Reply(frame=str(frame)):
            return orjson.loads(frame)
        case Reply(frame=frame):
            return frame
        case Hangup(code=code):
            return ("hangup", int(code))
        case _:
            return effect


def done(context: str) -> wire.Done:
    return wire.Done(context, 100, 5, wire.Timing())


def cancelled(context: str) -> wire.Cancelled:
    return wire.Cancelled(context, 100, "", "")


def error(code: str, text: str, context: str | None, *, fatal: bool = True) -> wire.Error:
    return wire.Error(code=code, message=text, fatal=fatal, context=UNSET if context is None else context)


def alignment(context: str, *words: tuple[str, int, int, int]) -> wire.Alignment:
    """Words: text, its place, start and end in ms."""
    items = [wire.AlignmentItem(text, start_ms, end_ms, at, at + len(text)) for text, at, start_ms, end_ms in words]
    return wire.Alignment(context, tuple(items), estimated=True)


def b64(audio: bytes) -> str:
    return base64.b64encode(audio).decode()
