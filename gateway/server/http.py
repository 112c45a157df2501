"""The GET pages on the WebSocket port. Pure: a request and what is to be shown in, a response out.

A return of None lets the request through to the WebSocket handshake.
"""

from dataclasses import asdict, dataclass
from email.utils import formatdate
from http import HTTPStatus
from math import ceil
from typing import Any, Final

import orjson
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from voicegate import __version__
from voicegate.engine.interface import EngineInfo
from voicegate.gateway.server import pages_static
from voicegate.gateway.server.pages_static import StaticFile
from voicegate.gateway.server.sites import Sites
from voicegate.gateway.session.quota import Excess
from voicegate.protocol.messages import STREAM_PATH

PAGES: Final = ("/", "/healthz", "/readyz", "/v1/voices", "/v1/capacity")
_KNOWN: Final = f"{', '.join(PAGES)}, and WebSocket at {STREAM_PATH}"
# Lower makes refused clients come back sooner and in greater numbers; higher keeps them silent for longer.
RETRY_AFTER_S: Final = 1
SERVER: Final = f"voicegate/{__version__}"
_METHODS: Final = "GET, HEAD, OPTIONS"
_GET_ONLY: Final = "only GET is answered here"


@dataclass(frozen=True, slots=True)
class Load:
    """How much of the server is taken. Fields are the names in /v1/capacity."""

    sockets: int = 0
    max_sockets: int = 1
    contexts: int = 0
    max_contexts: int = 1
    utterances: int = 0  # contexts with something to say, those that wait for room included
    max_utterances: int = 1
    waiting: int = 0
    max_waiting: int = 0
    retry_after_ms: int = 0  # for who is turned away now


@dataclass(frozen=True, slots=True)
class Status:
    """What the pages show, at the moment of the request."""

    unready_reason: str | None  # None: ready
    info: EngineInfo | None  # None: not known yet
    load: Load = Load()

    @property
    def refusal(self) -> str | None:
        """Why no new socket is let in."""
        if self.unready_reason is not None:
            return self.unready_reason
        if self.load.sockets >= self.load.max_sockets:
            return "all sockets are taken"
        if self.load.waiting >= self.load.max_waiting > 0:
            return "no room for speech: as many wait for it as may"
        return None


def respond(request: Request, status: Status, sites: Sites) -> Response | None:
    response = _respond(request, status, sites)
    if response is not None:
        response.headers.update(sites.cors_headers(request.headers))
    return response


def _respond(request: Request, status: Status, sites: Sites) -> Response | None:
    path = request.path.partition("?")[0]
    # Before websockets 16 only GET comes this far, and is not named.
    method = getattr(request, "method", "GET")
    if method == "OPTIONS":
        return _text(HTTPStatus.OK, _METHODS, Allow=_METHODS)
    if method not in ("GET", "HEAD"):
        return _text(HTTPStatus.METHOD_NOT_ALLOWED, _GET_ONLY, Allow=_METHODS)
    if path == STREAM_PATH:
        if (reason := sites.refusal(request.headers)) is not None:
            return _text(HTTPStatus.FORBIDDEN, reason)
        return None if status.refusal is None else _refused(status)
    file = None if path == "/" and not _wants_html(request) else pages_static.static_file(path)
    response = _page(path, status) if file is None else _static(file, request)
    if method == "HEAD":
        response.body = b""  # Content-Length stays: RFC 9110 section 9.3.2
    return response


def _page(path: str, status: Status) -> Response:
    match path:
        case "/":
            return _text(HTTPStatus.OK, f"voicegate {__version__}: {_KNOWN}")
        case "/healthz":
            return _text(HTTPStatus.OK, "ok")
        case "/readyz":
            return _text(HTTPStatus.OK, "ready") if status.refusal is None else _refused(status)
        case "/v1/capacity":
            return _capacity(status)
        case "/v1/voices":
            return _unready(status.unready_reason or "not ready") if status.info is None else _voices(status.info)
        case _:
            return _text(HTTPStatus.NOT_FOUND, f"nothing here; there are {_KNOWN}")


def answer_unreadable(head: bytes) -> bytes:
    """For what is no request that the library reads: one with a body, of another version, or of another protocol."""
    method, _, _ = head.partition(b" ")
    if method.isalpha() and method.isupper() and method.decode() not in _METHODS.split(", "):
        response = _text(HTTPStatus.METHOD_NOT_ALLOWED, _GET_ONLY, Allow=_METHODS)
    else:
        response = _text(HTTPStatus.BAD_REQUEST, "this is no request in HTTP/1.1 without a body")
    response.headers["Server"] = SERVER
    return response.serialize()


def is_upgrade(request: Request) -> bool:
    """Whether it asks for a WebSocket; the library refuses it where it asks wrongly."""
    return "Upgrade" in request.headers


def too_many_sockets(excess: Excess) -> Response:
    status = HTTPStatus.TOO_MANY_REQUESTS if excess.is_of_owner else HTTPStatus.SERVICE_UNAVAILABLE
    return _text(status, str(excess), **{"Retry-After": str(RETRY_AFTER_S)})


def _wants_html(request: Request) -> bool:
    """Browsers say so; curl and probes do not, and get one line."""
    return any("text/html" in value for value in request.headers.get_all("Accept"))


def _static(file: StaticFile, request: Request) -> Response:
    is_known = file.etag in request.headers.get_all("If-None-Match")
    status = HTTPStatus.NOT_MODIFIED if is_known else HTTPStatus.OK
    headers = {**pages_static.HEADERS, "ETag": file.etag, "Vary": "Accept"}
    response = _response(status, file.body, file.content_type, **headers)
    if is_known:
        response.body = b""  # as of HEAD
    return response


def _voices(info: EngineInfo) -> Response:
    voices = [{"name": voice.name, "description": voice.description} for voice in info.voices]
    body: dict[str, Any] = {"default": info.default_voice, "voices": voices}
    return _response(HTTPStatus.OK, orjson.dumps(body), "application/json")


def _capacity(status: Status) -> Response:
    """Also while no socket is let in: 200, because the question is answered."""
    refusal = status.refusal
    body: dict[str, Any] = {"accepts": refusal is None, "reason": refusal, **asdict(status.load)}
    return _response(HTTPStatus.OK, orjson.dumps(body), "application/json")


def _refused(status: Status) -> Response:
    assert status.refusal is not None
    is_busy = status.unready_reason is None
    retry_after_s = max(RETRY_AFTER_S, ceil(status.load.retry_after_ms / 1000)) if is_busy else RETRY_AFTER_S
    return _text(HTTPStatus.SERVICE_UNAVAILABLE, status.refusal, **{"Retry-After": str(retry_after_s)})


def _unready(reason: str) -> Response:
    return _text(HTTPStatus.SERVICE_UNAVAILABLE, reason, **{"Retry-After": str(RETRY_AFTER_S)})


def _text(status: HTTPStatus, line: str, **headers: str) -> Response:
    return _response(status, f"{line}\n".encode(), "text/plain; charset=utf-8", **headers)


def _response(status: HTTPStatus, body: bytes, content_type: str, **more: str) -> Response:
    headers = Headers(
        {
            "Date": formatdate(usegmt=True),
            "Connection": "close",
            "Content-Length": str(len(body)),
            "Content-Type": content_type,
            "Cache-Control": "no-store",
            **more,
        }
    )
    return Response(status.value, status.phrase, headers, body)
