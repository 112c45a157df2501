"""Rules for every HTTP request: whose pages may ask, who needs a key, what may be read, headers of answers."""

import time
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voicegate.gateway.auth.access import Access, Unauthorized
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.conversations.conversation import new_session_id
from voicegate.gateway.server.entrance.callers import caller_of
from voicegate.gateway.server.entrance.sites import Sites
from voicegate.gateway.server.entrance.unreadable import SERVER
from voicegate.gateway.server.http import pages_static
from voicegate.gateway.server.http.pages import json, missing, text
from voicegate.gateway.server.http.vendors import UNAUTHORIZED_HEADERS, naming_headers, unauthorized_body
from voicegate.gateway.server.http.visitor import note_key
from voicegate.gateway.server.metrics.meters import Meters
from voicegate.gateway.server.peer_watch import WRITE_LIMIT_BYTES
from voicegate.gateway.server.seldom import SeldomLog

_READING: Final = ("GET", "HEAD")
# Asked for by whatever name balancers know; a page at a name of an attacker's learns nothing from them.
_PROBES: Final = ("/healthz", "/readyz")
# These need no key: probes have none, and the page is where a person puts theirs.
OPEN_PATHS: Final = frozenset({"/", *_PROBES, "/openapi.json", *pages_static.paths()})
_SHOWN_CHARS: Final = 80

log = get_logger(__name__)


def methods_at(path: str, routes: list[Route]) -> str:
    methods = {method for route in routes if route.path_regex.match(path) for method in route.methods or ()}
    return ", ".join(sorted(methods | {"OPTIONS"}))


class Gatekeeper:
    """Around `app`; `routes` are its own, to name the methods of a path."""

    def __init__(self, app: ASGIApp, routes: list[Route], sites: Sites, access: Access, meters: Meters) -> None:
        self._app = app
        self.routes = routes
        self._sites = sites
        self._access = access
        self._meters = meters
        self._seldom = SeldomLog(log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "nothing else is handed over"
        headers = Headers(scope=scope)
        origins, hosts = headers.getlist("Origin"), headers.getlist("Host")

        scope["state"]["request_id"] = new_session_id()

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._meters.note_response(message["status"])
                ours = MutableHeaders(scope=message)
                ours.update({"Date": formatdate(usegmt=True), "Server": SERVER, "Connection": "close"})
                ours.update(naming_headers(scope["path"], scope["state"]["request_id"], headers=headers))
                for name, value in self._sites.cors_headers(origins, hosts).items():
                    ours.add_vary_header(value) if name == "Vary" else ours.update({name: value})
            await _send_piece_by_piece(send, message)

        answer = self._answer(Request(scope), headers, origins, hosts)
        with suppress(ClientDisconnect):  # in mid-body: no one waits for an answer
            await (self._app if answer is None else answer)(scope, receive, send_with_headers)

    def _answer(self, request: Request, headers: Headers, origins: list[str], hosts: list[str]) -> Response | None:
        """To what does not reach the app."""
        method, path = request.method, request.scope["path"]
        if method == "OPTIONS":
            return self._options(path, headers)
        if method in _READING:
            if headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in headers:
                return missing(request, HTTPStatus.BAD_REQUEST, f"{method} takes no body")
            refusal = None if path in _PROBES else self._sites.refusal_to_read(origins, hosts)
        else:  # a browser sends simple POSTs of any page without asking first
            refusal = self._sites.refusal(origins, hosts)
        if refusal is not None:
            return missing(request, HTTPStatus.FORBIDDEN, refusal)
        return self._unauthorized(request.scope, headers)

    def _unauthorized(self, scope: Scope, headers: Headers) -> Response | None:
        path = scope["path"]
        if path in OPEN_PATHS:
            return None
        caller = caller_of(headers.getlist, f"?{scope['query_string'].decode('latin-1')}")
        try:
            key = self._access.identify(caller.keys, time.time())
        except Unauthorized as refusal:
            request_id = scope["state"]["request_id"]
            self._seldom.warning(
                "a request without a good key is refused", path=path[:_SHOWN_CHARS], tag=caller.tag, session=request_id
            )
            body = unauthorized_body(path, str(refusal), request_id, headers)
            response = json(body, HTTPStatus.UNAUTHORIZED)
            named = naming_headers(path, request_id, str(refusal), headers=headers)
            response.headers.update(UNAUTHORIZED_HEADERS | named)
            return response
        if key is not None:
            note_key(scope, key)
        return None

    def _options(self, path: str, headers: Headers) -> Response:
        allowed = methods_at(path, self.routes)
        answer = text(HTTPStatus.OK, allowed, Allow=allowed, Access_Control_Allow_Methods=allowed)
        if (asked := headers.get("Access-Control-Request-Headers")) is not None:
            # Nothing here lives in a header that a listed site should not be able to send.
            answer.headers["Access-Control-Allow-Headers"] = asked
        return answer


async def _send_piece_by_piece(send: Send, message: Message) -> None:
    """So that little is left to send when the answer ends, from where on the connection has little time for it.

    What is given to TLS at once is ahead of all that it waits for.
    """
    body = message.get("body", b"")
    if not body:
        await send(message)
        return
    for start in range(0, len(body), WRITE_LIMIT_BYTES):
        piece = body[start : start + WRITE_LIMIT_BYTES]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    if not message.get("more_body"):
        await send({"type": "http.response.body", "body": b""})
