"""The body of a request, read within its limits of size and time."""

import asyncio
from http import HTTPStatus
from typing import Final

from starlette.requests import Request

# For a body to arrive in. Lower refuses uploads over slow lines; higher lets who sends nothing hold a place for longer.
_TIMEOUT_S: Final = 30.0
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
    if declared_bytes(request) > max_bytes:
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


def declared_bytes(request: Request) -> int:
    """0: it does not say."""
    declared = request.headers.get("Content-Length", "0")
    return int(declared) if declared.isdecimal() else 0


def _too_large(max_bytes: int) -> BodyRefused:
    return BodyRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is too large; at most {max_bytes} bytes")
