"""Whether a WebSocket's handshake is let in, and the answer to one that is not. Pure."""

from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus

import orjson
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from voicegate.gateway.auth.access import Unauthorized
from voicegate.gateway.server.entrance.sites import Sites
from voicegate.gateway.server.http.pages import KNOWN
from voicegate.gateway.server.http.vendors import (
    UNAUTHORIZED_HEADERS,
    problem_body,
    unauthorized_body,
    vendor_of,
)
from voicegate.gateway.server.status import RETRY_AFTER_S, Status
from voicegate.gateway.session.quota import Excess
from voicegate.protocol.dialects.catalogue import find_dialect, has_dialect
from voicegate.protocol.errors import ErrorCode, ProtocolViolation
from voicegate.protocol.messages import STREAM_PATH


@dataclass
class _Refusal(Response):
    reason: str = ""  # for people and logs; the body may be for programs


def is_upgrade(request: Request) -> bool:
    """Whether it asks for a WebSocket; the library refuses it where it asks wrongly."""
    return request.method == "GET" and any("websocket" in value.lower() for value in request.headers.get_all("Upgrade"))


def find_refusal(
    request: Request, status: Status, sites: Sites, unauthorized: Unauthorized | None = None
) -> Response | None:
    """`unauthorized`: why its key does not do."""
    origins, hosts = request.headers.get_all("Origin"), request.headers.get_all("Host")
    path = request.path.partition("?")[0]
    if path != STREAM_PATH and not has_dialect(path):
        response = _told(request, HTTPStatus.NOT_FOUND, ErrorCode.UNSUPPORTED, f"nothing here; there are {KNOWN}")
    elif (reason := sites.refusal(origins, hosts)) is not None:
        response = _told(request, HTTPStatus.FORBIDDEN, ErrorCode.UNSUPPORTED, reason)
    elif unauthorized is not None:
        body = orjson.dumps(unauthorized_body(path, str(unauthorized), headers=request.headers))
        response = _answer(HTTPStatus.UNAUTHORIZED, body, "application/json", str(unauthorized))
        response.headers.update(UNAUTHORIZED_HEADERS)
    elif status.refusal is not None:
        unavailable, retry_after_s = HTTPStatus.SERVICE_UNAVAILABLE, status.retry_after_s
        response = _told(request, unavailable, ErrorCode.OVERLOADED, status.refusal, retry_after_s=retry_after_s)
    else:
        try:
            find_dialect(request.path)
        except ProtocolViolation as violation:
            response = _told(request, HTTPStatus.BAD_REQUEST, violation.code, violation.message)
        else:
            return None
    response.headers.update(sites.cors_headers(origins, hosts))
    return response


def too_many_sockets(request: Request, excess: Excess) -> Response:
    code = ErrorCode.TOO_MANY_CONTEXTS if excess.is_of_owner else ErrorCode.OVERLOADED
    return _told(request, status_of(excess), code, str(excess), retry_after_s=RETRY_AFTER_S)


def reason_of(refusal: Response) -> str:
    """Also of what the library refuses by itself, in a line of text."""
    return refusal.reason if isinstance(refusal, _Refusal) else refusal.body.decode().strip()


def status_of(excess: Excess) -> HTTPStatus:
    return HTTPStatus.TOO_MANY_REQUESTS if excess.is_of_owner else HTTPStatus.SERVICE_UNAVAILABLE


def _told(
    request: Request, status: HTTPStatus, code: ErrorCode, line: str, *, retry_after_s: int | None = None
) -> Response:
    """One line for people, and for a vendor's programs in their form."""
    path = request.path.partition("?")[0]
    if vendor_of(path, request.headers) is None:
        response = _answer(status, f"{line}\n".encode(), "text/plain; charset=utf-8", line)
    else:
        body = orjson.dumps(problem_body(path, code.value, line, status, headers=request.headers))
        response = _answer(status, body, "application/json", line)
    if retry_after_s is not None:
        response.headers["Retry-After"] = str(retry_after_s)
    return response


def _answer(status: HTTPStatus, body: bytes, content_type: str, reason: str) -> _Refusal:
    headers = Headers(
        {
            "Date": formatdate(usegmt=True),
            "Connection": "close",
            "Content-Length": str(len(body)),
            "Content-Type": content_type,
            "Cache-Control": "no-store",
        }
    )
    return _Refusal(status.value, status.phrase, headers, body, reason=reason)
