"""The library's server side of the WebSocket protocol behind a request that `reception.py` has read; and a shorter way
to make its commonest frames. Pure."""

import logging
import struct
from collections.abc import Sequence
from typing import Final

from websockets.frames import Opcode
from websockets.protocol import Protocol
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from voicegate.gateway.server.entrance.callers import KEY_SUBPROTOCOLS
from voicegate.protocol.messages import SUBPROTOCOL

_TAKEN_SUBPROTOCOLS: Final = tuple(Subprotocol(name) for name in (SUBPROTOCOL, *KEY_SUBPROTOCOLS))
_LOGGER: Final = logging.getLogger("websockets.server")
_TEXT_FIRST_BYTE: Final = 0x80 | Opcode.TEXT
_BINARY_FIRST_BYTE: Final = 0x80 | Opcode.BINARY
_HEAD: Final = struct.Struct(">BB")
_HEAD_16: Final = struct.Struct(">BBH")
_HEAD_64: Final = struct.Struct(">BBQ")


class FrameProtocol(ServerProtocol):
    """It is asked about the request, and given the frames behind it."""

    def __init__(self, *, max_size: int) -> None:
        """`max_size`: of a message, in bytes."""
        super().__init__(max_size=max_size, logger=_LOGGER)

    parse = Protocol.parse

    def select_subprotocol(self, subprotocols: Sequence[Subprotocol]) -> Subprotocol | None:
        """Offered, not required: a client that names none, or only others, is let in too.

        A browser hangs up where none that it offers is taken, and a key (of `token, KEY`) is none.
        """
        return next((name for name in _TAKEN_SUBPROTOCOLS if name in subprotocols), None)


def whole_frame(message: str | bytes) -> bytes:
    """RFC 6455 section 5.2: one frame, not masked."""
    first_byte, payload = (
        (_BINARY_FIRST_BYTE, message) if isinstance(message, bytes) else (_TEXT_FIRST_BYTE, message.encode())
    )
    size = len(payload)
    if size < 126:
        return _HEAD.pack(first_byte, size) + payload
    head = _HEAD_16.pack(first_byte, 126, size) if size < 1 << 16 else _HEAD_64.pack(first_byte, 127, size)
    return head + payload
