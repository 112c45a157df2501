"""Just enough of a client's side of WebSocket to cost little: what is sent is written before, what comes is cut."""

import json
import struct
from typing import Final

TEXT: Final = 0x81
BINARY: Final = 0x82
PING: Final = 0x89
PONG: Final = 0x8A
_LENGTH16: Final = struct.Struct(">H")
_ZERO_MASK: Final = bytes(4)


def handshake(target: str, host: str) -> bytes:
    return (
        f"GET {target} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()


def client_frame(first_byte: int, payload: bytes) -> bytes:
    """Masked by zero, which leaves the payload as it is."""
    if len(payload) > 125:
        raise ValueError("only short messages are sent here")
    return bytes([first_byte, 0x80 | len(payload)]) + _ZERO_MASK + payload


def text_frame(message: dict[str, str]) -> bytes:
    return client_frame(TEXT, json.dumps(message).encode())


def frame_at(buffer: bytes, position: int) -> tuple[int, int, int] | None:
    """Its first byte, where its payload begins and ends; None where it is not whole."""
    if len(buffer) < position + 2:
        return None
    length, start = buffer[position + 1], position + 2
    if length == 126:
        if len(buffer) < position + 4:
            return None
        (length,), start = _LENGTH16.unpack_from(buffer, start), position + 4
    elif length == 127:
        raise ValueError("a message longer than any that the metronome makes")
    end = start + length
    return (buffer[position], start, end) if end <= len(buffer) else None
