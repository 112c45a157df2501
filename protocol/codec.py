"""JSON text <-> typed message: the only place that knows JSON. Bad input raises ProtocolViolation, nothing else."""

from typing import Any

import msgspec
import orjson

from voicegate.protocol import messages
from voicegate.protocol.complaint import complaint
from voicegate.protocol.errors import ErrorCode, ProtocolViolation, UnknownType
from voicegate.protocol.messages import ClientMessage, ServerMessage

# Longest part of a peer's own input that an error message repeats.
_ECHO_CHARS = 80
_CONTEXT_CHARS = 64


def encode(message: ClientMessage | ServerMessage) -> str:
    """One JSON object with its `type`. Text that UTF-8 cannot hold raises ProtocolViolation."""
    try:
        return orjson.dumps(msgspec.to_builtins(message)).decode()
    except TypeError as error:  # orjson's word for lone surrogates
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, f"cannot be written as JSON: {error}") from error


def decode_client(raw: str | bytes) -> ClientMessage:
    message: ClientMessage = _decode(raw, ClientMessage)
    context = getattr(message, "context", None)
    if context is not None and not context.isprintable():
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, "context must consist of printable characters")
    return message


def decode_server(raw: str | bytes) -> ServerMessage:
    """Raises UnknownType for what a client is to ignore, else ProtocolViolation."""
    message: ServerMessage = _decode(raw, ServerMessage)
    return message


def read_server(raw: str | bytes) -> ServerMessage | None:
    """As a client is to read it: None for a type that it does not know. Raises ProtocolViolation."""
    try:
        return decode_server(raw)
    except UnknownType:
        return None


def _decode(raw: str | bytes, union: Any) -> Any:
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, "a message is a JSON object with a `type`")
    if not isinstance(value.get("type"), str):
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, "the field `type` is missing or not a string")
    known = _TYPES[union]
    kind = known.get(value["type"])
    if kind is None:
        shown = value["type"][:_ECHO_CHARS]
        raise UnknownType(
            ErrorCode.BAD_MESSAGE, f"unknown type {shown!r}; this protocol has {', '.join(sorted(known))}"
        )
    try:
        return msgspec.convert(value, kind)  # of the union itself it would make up its mind anew each time: 35 us
    except msgspec.ValidationError as error:
        raise ProtocolViolation(
            ErrorCode.BAD_MESSAGE,
            f"{value['type']}: {complaint(error, kind)}",
            context=_context_of(value),
            message_type=value["type"],
        ) from error


def _context_of(value: dict[str, Any]) -> str | None:
    """The context that a bad message names, if that much of it is right."""
    context = value.get("context")
    is_name = isinstance(context, str) and 1 <= len(context) <= _CONTEXT_CHARS and context.isprintable()
    return context if is_name else None


def _by_tag(union: Any) -> dict[str, Any]:
    return {str(member.__struct_config__.tag): member for member in union.__args__}


_TYPES: dict[Any, dict[str, Any]] = {
    messages.ClientMessage: _by_tag(messages.ClientMessage),
    messages.ServerMessage: _by_tag(messages.ServerMessage),
}
