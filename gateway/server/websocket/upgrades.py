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
from voicegate.gateway.server.http.vendors import UNAUTHORIZED_HEADERS, unauthorized_body
from voicegate.gateway.server.status import RETRY_AFTER_S, Status
from voicegate.gateway.session.quota import Excess
from voicegate.protocol.dialects.catalogue import find_dialect, has_dialect
from voicegate.protocol.errors import ProtocolViolation
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
        response = _text(HTTPStatus.NOT_FOUND, f"nothing here; there are {KNOWN}")
    elif (reason := sites.refusal(origins, hosts)) is not None:
        response = _text(HTTPStatus.FORBIDDEN, reason)
    elif unauthorized is not None:
        body = orjson.dumps(unauthorized_body(path, str(unauthorized)))
        response = _answer(HTTPStatus.UNAUTHORIZED, body, "application/json", str(unauthorized))
        response.headers.update(UNAUTHORIZED_HEADERS)
    elif status.refusal is not None:
        response = _text(HTTPStatus.SERVICE_UNAVAILABLE, status.refusal, retry_after_s=status.retry_after_s)
    else:
        try:
            find_dialect(request.path)
        except ProtocolViolation as violation:
            response = _text(HTTPStatus.BAD_REQUEST, violation.message)
        else:
            return None
    response.headers.update(sites.cors_headers(origins, hosts))
    return response


def too_many_sockets(excess: Excess) -> Response:
    return _text(status_of(excess), str(excess), retry_after_s=RETRY_AFTER_S)


def reason_of(refusal: Response) -> str:
    """Also of what the library refuses by itself, in a line of text."""
    return refusal.reason if isinstance(refusal, _Refusal) else refusal.body.decode().strip()


def status_of(excess: Excess) -> HTTPStatus:
    return HTTPStatus.TOO_MANY_REQUESTS if excess.is_of_owner else HTTPStatus.SERVICE_UNAVAILABLE


def _text(status: HTTPStatus, line: str, *, retry_after_s: int | None = None) -> Response:
    response = _answer(status, f"{line}\n".encode(), "text/plain; charset=utf-8", line)
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
