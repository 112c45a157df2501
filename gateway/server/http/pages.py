"""Answers to GET: probes, capacity, voices, and the browser client's files."""

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Final

import orjson
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from voicegate import __version__
from voicegate.engine.interface import EngineStats
from voicegate.gateway.server.http import pages_static
from voicegate.gateway.server.http.pages_static import StaticFile
from voicegate.gateway.server.http.vendors import VENDORS, problem_body, vendor_of
from voicegate.gateway.server.http.visitor import request_id_of
from voicegate.gateway.server.status import Status
from voicegate.protocol.dialects.catalogue import PATHS as DIALECT_PATHS
from voicegate.protocol.errors import ErrorCode
from voicegate.protocol.messages import STREAM_PATH

PAGES: Final = (
    "/",
    "/healthz",
    "/readyz",
    "/v1/voices",
    "/v1/audio/voices",
    "/v1/models",
    "/v1/capacity",
    "/openapi.json",
)
KNOWN: Final = (
    f"{', '.join(PAGES)}, POST at {', '.join(VENDORS)}, and WebSocket at {', '.join((STREAM_PATH, *DIALECT_PATHS))}"
)


class Pages:
    def __init__(self, status: Callable[[], Status], stats: Callable[[], EngineStats]) -> None:
        self._status = status
        self._stats = stats

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/", self._root),
            Route("/healthz", self._health),
            Route("/readyz", self._readiness),
            Route("/v1/capacity", self._capacity),
            Route(STREAM_PATH, self._stream),
            *(Route(path, _static) for path in pages_static.paths() if path != "/"),
        ]

    async def _root(self, request: Request) -> Response:
        if (version := request.headers.get("Cartesia-Version")) is not None:  # its clients ask here how it is
            return json({"ok": self._status().refusal is None, "version": version})
        if wants_html(request) and (page := pages_static.static_file("/")) is not None:
            return _file(page, request)
        return text(HTTPStatus.OK, f"voicegate {__version__}: {KNOWN}")

    async def _health(self, _request: Request) -> Response:
        hang = self._status().hang
        if hang is not None:
            return text(HTTPStatus.SERVICE_UNAVAILABLE, hang)
        hanging = [device for device, hangs in self._stats().hangs.items() if hangs]
        return text(HTTPStatus.OK, f"ok, without {', '.join(hanging)}, which hangs" if hanging else "ok")

    async def _readiness(self, _request: Request) -> Response:
        status = self._status()
        return text(HTTPStatus.OK, "ready") if status.refusal is None else refused(status)

    async def _capacity(self, _request: Request) -> Response:
        """Also while no socket is let in: 200, because the question is answered."""
        status = self._status()
        refusal = status.refusal
        replicas = [_replica(name, stats.gauges) for name, stats in self._stats().engines.items()]
        return json({"accepts": refusal is None, "reason": refusal, **asdict(status.load), "replicas": replicas})

    async def _stream(self, request: Request) -> Response:
        return no_handshake(request)


def _replica(name: str, gauges: Mapping[str, float]) -> dict[str, object]:
    """An engine process, or a token2wav, of an engine that consists of several."""
    return {
        "name": name,
        "ready": bool(gauges["replica_ready"]),
        "utterances": gauges["replica_utterances"],
        "room": gauges["replica_room"],
    }


def wants_html(request: Request) -> bool:
    """Browsers say so; curl and probes do not, and get one line."""
    return any("text/html" in value for value in request.headers.getlist("Accept"))


async def _static(request: Request) -> Response:
    file = pages_static.static_file(request.url.path)
    assert file is not None, "routes are made of the files there are"
    return _file(file, request)


def _file(file: StaticFile, request: Request) -> Response:
    headers = {**pages_static.HEADERS, "ETag": file.etag, "Vary": "Accept"}
    if _names(request.headers.getlist("If-None-Match"), file.etag):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(file.body, headers={**headers, "Content-Type": file.content_type})


def _names(if_none_match: Iterable[str], etag: str) -> bool:
    """Weak ones too, which a proxy that compresses makes of ours."""
    tags = (tag.strip() for value in if_none_match for tag in value.split(","))
    return any(tag.removeprefix("W/") in (etag, "*") for tag in tags)


# --- answers ----------------------------------------------------------------------------------------------


def text(status: HTTPStatus, line: str, **headers: str) -> Response:
    """One line for people and probes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return PlainTextResponse(f"{line}\n", status, headers={"Cache-Control": "no-store", **named})


def json(body: object, status: HTTPStatus = HTTPStatus.OK, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named |= {"Cache-Control": "no-store", "Content-Type": "application/json"}
    return Response(orjson.dumps(body), status, headers=named)


def no_handshake(request: Request) -> Response:
    """To a GET where there is a WebSocket, which was not taken for a handshake: it asks for none, or cannot be read."""
    path = request.url.path
    if "websocket" in request.headers.get("Upgrade", "").lower():
        line = "this handshake cannot be read: lines have up to 8190 bytes, no folds and no control characters"
        return text(HTTPStatus.BAD_REQUEST, line)
    line = f"{path} is a WebSocket (RFC 6455); this request asks for none, or a proxy has taken its Upgrade away"
    return text(HTTPStatus.UPGRADE_REQUIRED, line, Upgrade="websocket")


def problem(
    request: Request, status: HTTPStatus, code: str, message: str, *, field: str | None = None, **headers: str
) -> Response:
    """For programs, in the form that their vendor's have; `field`: of the request, where one is to blame."""
    request_id, path = request_id_of(request), request.url.path
    body = problem_body(path, code, message, status, request_id=request_id, headers=request.headers, field=field)
    return json(body, status, **headers)


def unknown_voice(request: Request) -> Response:
    """At a path with `{name}`."""
    line = f"no voice {request.path_params['name'][:80]!r}; GET /v1/voices lists them"
    return problem(request, HTTPStatus.NOT_FOUND, ErrorCode.UNKNOWN_VOICE.value, line)


def missing(
    request: Request, status: HTTPStatus, line: str, *, code: ErrorCode = ErrorCode.UNSUPPORTED, **headers: str
) -> Response:
    """One line for people, and for a vendor's programs as `problem`."""
    if vendor_of(request.url.path, request.headers) is None:
        return text(status, line, **headers)
    return problem(request, status, code.value, line, **headers)


def refused(status: Status) -> Response:
    assert status.refusal is not None
    return text(HTTPStatus.SERVICE_UNAVAILABLE, status.refusal, Retry_After=str(status.retry_after_s))
