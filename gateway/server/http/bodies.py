"""The body of a request, read within its limits of size and time."""

import asyncio
from http import HTTPStatus
from typing import Final

from starlette.requests import Request

from voicegate.gateway.server.http.refused import Refused
from voicegate.protocol.dialects.one_shot import Problem
from voicegate.protocol.errors import ErrorCode

# For a body to arrive in. Lower refuses uploads over slow lines; higher lets who sends nothing hold a place for longer.
_TIMEOUT_S: Final = 30.0
_SHOWN_CHARS: Final = 80


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Raises Refused, and Starlette's ClientDisconnect."""
    if (coding := request.headers.get("Content-Encoding", "identity").lower()) not in ("identity", ""):
        text = f"the body is in Content-Encoding {coding[:_SHOWN_CHARS]}; send it as it is"
        raise unfit_body(text, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
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
        raise unfit_body(f"the body did not come within {_TIMEOUT_S:g} s", HTTPStatus.REQUEST_TIMEOUT) from None
    return bytes(body)


def declared_bytes(request: Request) -> int:
    """0: it does not say."""
    declared = request.headers.get("Content-Length", "0")
    return int(declared) if declared.isdecimal() else 0


def _too_large(max_bytes: int) -> Refused:
    return unfit_body(f"the body is too large; at most {max_bytes} bytes", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


def unfit_body(message: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST, *, field: str | None = None) -> Refused:
    return Refused(Problem(ErrorCode.BAD_MESSAGE, message, field=field), status)
