"""The first bytes of a connection, and who is to have it: a WebSocket's handshake goes one way, all else the other.

Every request has a connection of its own, so its owner keeps it. It must not know what either does with it.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, cast

from websockets.http11 import Request
from websockets.streams import StreamReader

from voicegate.gateway.server.entrance.unreadable import plain_answer

# Time for the head of a request, from the connection on. Lower cuts those on bad lines; higher lets those who send
# nothing keep a place for longer, if no one else needs it.
_HEAD_TIMEOUT_S: Final = 10.0
MAX_HEAD_BYTES: Final = 16 * 1024
_MAX_HEAD_LINES: Final = 130  # the last one, which is blank, included: the WebSocket library's limit
_TOO_LARGE: Final = f"the head of a request has at most {MAX_HEAD_BYTES} bytes and {_MAX_HEAD_LINES} lines"
NO_REQUEST: Final = "this is no request in HTTP/1.1"
_WHOLE_URL: Final = re.compile(rb"([A-Za-z]+ )https?://[^/?#\s]+(/?)", re.IGNORECASE)
# Method and path alone: a base URL may end with a slash, and a path with another be put after it.
_PATH: Final = re.compile(rb"([A-Za-z]+ )(/[^?#\s]*)")
_SLASHES: Final = re.compile(rb"/{2,}")
_LAST_SLASH: Final = re.compile(rb"(?<=[^/])/$")
_HEAD_ENDS: Final = (b"\r\n\r\n", b"\n\n", b"\n\r\n")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that a WebSocket may begin with."""

    request: Request
    rest: bytes  # of what was read: behind its head


class Reception(asyncio.Protocol):
    """`successor` is asked who has the connection, which is given the bytes that were read in any case."""

    def __init__(
        self,
        *,
        successor: Callable[[asyncio.Transport, Asked | None], asyncio.Protocol],
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
        if self._transport.is_closing():
            return
        self._head += data
        num_lines = _num_lines(self._head)
        if not self._head[:1].isalpha():  # methods begin so; anything else, say a TLS handshake, may have no end
            self._refuse(HTTPStatus.BAD_REQUEST, NO_REQUEST)
        elif num_lines is None:
            if len(self._head) > MAX_HEAD_BYTES:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, _TOO_LARGE)
        elif num_lines > _MAX_HEAD_LINES:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, _TOO_LARGE)
        else:
            self._hand_over(in_origin_form(bytes(self._head)))

    def _refuse(self, status: HTTPStatus, line: str) -> None:
        self._transport.write(plain_answer(status, line))
        self._transport.close()

    def _hand_over(self, head: bytes) -> None:
        self._waiting.cancel()
        successor = self._successor(self._transport, asked_in(head))
        self._transport.set_protocol(successor)
        successor.connection_made(self._transport)
        successor.data_received(head)


def _num_lines(head: bytearray) -> int | None:
    """None: it has no end, as far as it may be long."""
    stops = [start + len(end) for end in _HEAD_ENDS if (start := head.find(end, 0, MAX_HEAD_BYTES)) >= 0]
    return head.count(b"\n", 0, min(stops)) if stops else None


def in_origin_form(head: bytes) -> bytes:
    """A request may ask for a whole URL, as through a proxy (RFC 9112 section 3.2.2): for its path, then.

    And a path's slashes are one, and none at its end.
    """
    asked = _WHOLE_URL.match(head)
    if asked is not None:
        head = asked[1] + b"/" + head[asked.end() :]
    path = _PATH.match(head)
    return head if path is None else path[1] + _one_slash(path[2]) + head[path.end() :]


def _one_slash(path: bytes) -> bytes:
    return _LAST_SLASH.sub(b"", _SLASHES.sub(b"/", path))


def asked_in(head: bytes) -> Asked | None:
    """As the WebSocket library reads it; None: it would not."""
    reader = StreamReader()
    reader.feed_data(head)
    parsing = Request.parse(reader.read_line)
    try:
        next(parsing)
    except StopIteration as stop:
        return Asked(stop.value, bytes(reader.buffer))
    except Exception:  # noqa: BLE001 - it raises what it likes; whatever is wrong with it, it is no handshake
        return None
    return None
