"""`POST /v1/tokens`: who holds a key has a token made for a browser, which opens sockets for a short while."""

import time
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.entrance.callers import caller_of
from voicegate.gateway.server.http.bodies import BodyRefused, read_body
from voicegate.gateway.server.http.pages import json, problem
from voicegate.gateway.server.http.stage import Stage
from voicegate.protocol.dialects.one_shot import RequestViolation, decode
from voicegate.protocol.errors import ErrorCode

_MAX_BODY_BYTES: Final = 1024
# Lower makes a page that opens late fail; higher lets whoever finds a token use it for longer.
_DEFAULT_S: Final = 60
MAX_S: Final = 3600

log = get_logger(__name__)


class _Asked(msgspec.Struct):
    seconds: Annotated[int, msgspec.Meta(ge=1, le=MAX_S)] = _DEFAULT_S


class Tokens:
    def __init__(self, stage: Stage) -> None:
        self._access = stage.access

    @property
    def routes(self) -> list[Route]:
        return [Route("/v1/tokens", self._mint, methods=["POST"])]

    async def _mint(self, request: Request) -> Response:
        if not self._access.asks_for_keys:
            text = "this server asks for no key, so nobody needs a token"
            return problem(HTTPStatus.BAD_REQUEST, ErrorCode.UNSUPPORTED.value, text)
        try:
            body = await read_body(request, _MAX_BODY_BYTES)
            asked = decode(body, _Asked) if body else _Asked()
        except BodyRefused as refused:
            return problem(refused.status, ErrorCode.BAD_MESSAGE.value, str(refused))
        except RequestViolation as violation:
            return problem(HTTPStatus.BAD_REQUEST, ErrorCode.BAD_MESSAGE.value, violation.message)
        # Asked anew: it may have been taken back while the body came.
        key = self._access.key_among(caller_of(request.headers.getlist, f"?{request.url.query}").keys)
        if key is None:
            text = "only a key gets a token, and a token is none"
            return problem(HTTPStatus.FORBIDDEN, ErrorCode.UNAUTHORIZED.value, text)
        log.info("token made", key=key.name, seconds=asked.seconds)
        return json({"token": self._access.mint(key, int(time.time()) + asked.seconds), "expires_in": asked.seconds})
