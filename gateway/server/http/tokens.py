"""`POST /v1/tokens`: who holds a key has a token made for a browser, which opens sockets for a short while.

Other vendors' clients ask for one at paths of their own.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Annotated, ClassVar, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from voicegate.gateway.auth.keyring import Key
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.http.bodies import read_body
from voicegate.gateway.server.http.pages import json
from voicegate.gateway.server.http.refused import Refused
from voicegate.gateway.server.http.stage import Stage
from voicegate.gateway.server.http.visitor import key_in
from voicegate.protocol.dialects.one_shot import Problem, decode
from voicegate.protocol.errors import ErrorCode

_MAX_BODY_BYTES: Final = 1024
# Lower makes a page that opens late fail; higher lets a finder of a token use it for longer.
_DEFAULT_S: Final = 60
MAX_S: Final = 3600

# In development a server asks for no key, and apps ask it for tokens all the same. No key can have this name: the token
# opens nothing where there are keys.
_ANYBODY: Final = Key("(anybody)", digest=b"")

log = get_logger(__name__)


_Seconds = Annotated[int, msgspec.Meta(ge=1, le=MAX_S)]


class _Asked(msgspec.Struct):
    seconds: _Seconds = _DEFAULT_S


class _AskedByElevenLabs(msgspec.Struct):
    seconds: ClassVar[int] = 900  # which no one may choose there


class _AskedByCartesia(msgspec.Struct):
    seconds: _Seconds | None = msgspec.field(name="expires_in", default=None)


class _AskedByDeepgram(msgspec.Struct):
    seconds: Annotated[float, msgspec.Meta(ge=1, le=MAX_S)] | None = msgspec.field(name="ttl_seconds", default=None)


@dataclass(frozen=True, slots=True)
class _Form:
    """How a vendor has it."""

    asked: type[_Asked | _AskedByElevenLabs | _AskedByCartesia | _AskedByDeepgram]
    answer: Callable[[str, int], dict[str, object]]


_FORMS: Final[Mapping[str, _Form]] = {
    "/v1/tokens": _Form(_Asked, lambda token, seconds: {"token": token, "expires_in": seconds}),
    "/v1/single-use-token/{kind}": _Form(_AskedByElevenLabs, lambda token, _: {"token": token}),
    "/access-token": _Form(_AskedByCartesia, lambda token, _: {"token": token}),
    "/v1/auth/grant": _Form(_AskedByDeepgram, lambda token, seconds: {"access_token": token, "expires_in": seconds}),
}


class Tokens:
    def __init__(self, stage: Stage) -> None:
        self._access = stage.access

    @property
    def routes(self) -> list[Route]:
        return [Route(path, partial(self._mint, form), methods=["POST"]) for path, form in _FORMS.items()]

    async def _mint(self, form: _Form, request: Request) -> Response:
        asked = decode(await read_body(request, _MAX_BODY_BYTES) or b"{}", form.asked)
        # Asked anew: it may have been taken back while the body came.
        key = key_in(request, self._access) if self._access.asks_for_keys else _ANYBODY
        if key is None:
            text = "only a key gets a token, and a token is none"
            raise Refused(Problem(ErrorCode.UNAUTHORIZED, text), HTTPStatus.FORBIDDEN)
        seconds = _DEFAULT_S if asked.seconds is None else int(asked.seconds)
        log.info("token made", key=key.name, seconds=seconds)
        return json(form.answer(self._access.mint(key, math.ceil(time.time() + seconds)), seconds))
