"""The GET pages on the WebSocket port. Pure: a request and what is to be shown in, a response out.

A return of None lets the request through to the WebSocket handshake.
"""

from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
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

PAGES: Final = ("/", "/healthz", "/readyz", "/v1/voices")
_KNOWN: Final = f"{', '.join(PAGES)}, and WebSocket at {STREAM_PATH}"
# Lower makes refused clients come back sooner and in greater numbers; higher keeps them silent for longer.
RETRY_AFTER_S: Final = 1
SERVER: Final = f"voicegate/{__version__}"
_METHODS: Final = "GET, HEAD, OPTIONS"
_GET_ONLY: Final = "only GET is answered here"


@dataclass(frozen=True, slots=True)
class Status:
    """What the pages show, at the moment of the request."""

    unready_reason: str | None  # None: ready
    is_full: bool  # whether no further socket is let in
    info: EngineInfo | None  # None: not known yet


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
        return None if status.unready_reason is None else _unready(status.unready_reason)
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
            reason = status.unready_reason or ("all sockets are taken" if status.is_full else None)
            return _text(HTTPStatus.OK, "ready") if reason is None else _unready(reason)
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
