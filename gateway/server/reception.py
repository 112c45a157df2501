"""The first bytes of a connection, and who is to have it: a WebSocket's handshake goes one way, all else the other.

Every request has a connection of its own, so whoever has it keeps it. It must not know what either does with it.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from websockets.http11 import Request
from websockets.streams import StreamReader

# Time for the head of a request, from the connection on. Lower cuts those on bad lines; higher lets those who send
# nothing keep a place for longer, if nobody else needs it.
_HEAD_TIMEOUT_S: Final = 10.0
MAX_HEAD_BYTES: Final = 16 * 1024
_HEAD_ENDS: Final = (b"\r\n\r\n", b"\n\n", b"\n\r\n")


class Reception(asyncio.Protocol):
    """`successor` is asked who has the connection, with the request if it is one that a WebSocket may begin with."""

    def __init__(
        self,
        *,
        successor: Callable[[asyncio.Transport, Request | None], asyncio.Protocol],
        on_arrival: Callable[[asyncio.Transport], None],
        on_departure: Callable[[asyncio.Transport], None],
    ) -> None:
        self._successor = successor
        self._on_arrival = on_arrival
        self._on_departure = on_departure
        self._head = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by name
        self._waiting = asyncio.get_running_loop().call_later(_HEAD_TIMEOUT_S, self._transport.abort)
        self._on_arrival(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.cancel()
        self._on_departure(self._transport)

    def data_received(self, data: bytes) -> None:
        self._head += data
        if _has_end(self._head) or not _is_http(self._head):
            self._hand_over(bytes(self._head))
        elif len(self._head) > MAX_HEAD_BYTES:
            self._hand_over(bytes(self._head[: MAX_HEAD_BYTES + 1]))  # without an end, so that it is refused

    def _hand_over(self, head: bytes) -> None:
        self._waiting.cancel()
        successor = self._successor(self._transport, _request_in(head))
        self._transport.set_protocol(successor)
        successor.connection_made(self._transport)
        successor.data_received(head)


def _has_end(head: bytearray) -> bool:
    return any(head.find(end, 0, MAX_HEAD_BYTES) >= 0 for end in _HEAD_ENDS)


def _is_http(head: bytearray) -> bool:
    """As far as the first byte tells: methods are letters, and a TLS handshake has no end that one could wait for."""
    return head[:1].isalpha()


def _request_in(head: bytes) -> Request | None:
    """As the WebSocket library reads it; None: it would not."""
    reader = StreamReader()
    reader.feed_data(head)
    parsing = Request.parse(reader.read_line)
    try:
        next(parsing)
    except StopIteration as stop:
        request: Request = stop.value
        return request
    except Exception:  # noqa: BLE001 - it raises what it likes; whatever is wrong with it, it is no handshake
        return None
    return None
