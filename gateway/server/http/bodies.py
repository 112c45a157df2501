"""The body of a request: read within its limits of size and time, or thrown away where nobody wants it."""

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.types import Message, Receive

# For a body to arrive in. Lower refuses uploads over slow lines; higher lets who sends nothing hold a place for longer.
_TIMEOUT_S: Final = 30.0
# Of a body that nobody wants. Lower makes clients that send more lose the answer, which says why; higher lets them
# send in vain for longer.
_DISCARDED_BYTES: Final = 64 * 1024 * 1024
_DISCARDING_S: Final = 5.0
_SHOWN_CHARS: Final = 80


class BodyRefused(Exception):
    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Raises BodyRefused, and Starlette's ClientDisconnect."""
    if (coding := request.headers.get("Content-Encoding", "identity").lower()) not in ("identity", ""):
        text = f"the body is in Content-Encoding {coding[:_SHOWN_CHARS]}; send it as it is"
        raise BodyRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
    declared = request.headers.get("Content-Length", "0")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            async for part in request.stream():
                body += part
                if len(body) > max_bytes:
                    raise _too_large(max_bytes)
    except TimeoutError:
        raise BodyRefused(HTTPStatus.REQUEST_TIMEOUT, f"the body did not come within {_TIMEOUT_S:g} s") from None
    return bytes(body)


def _too_large(max_bytes: int) -> BodyRefused:
    return BodyRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is too large; at most {max_bytes} bytes")


class Inbound:
    """The incoming side of a request, which knows whether all of it has come."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_complete = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._is_complete = not message.get("more_body", False)
        return message

    async def discard(self) -> None:
        """What is on its way, before an answer that ends the connection: a reset would overtake the answer."""
        num_bytes = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(_DISCARDING_S):
                while not self._is_complete and num_bytes < _DISCARDED_BYTES:
                    num_bytes += len((await self.receive()).get("body", b""))
