"""The ASGI app: every HTTP request but a WebSocket's handshake."""

from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from voicegate.gateway.server.http.gatekeeper import Gatekeeper
from voicegate.gateway.server.http.pages import KNOWN, Pages, text
from voicegate.gateway.server.http.requests import speech_routes
from voicegate.gateway.server.http.stage import Stage


def build_app(stage: Stage) -> ASGIApp:
    routes = [*Pages(stage.status).routes, *speech_routes(stage)]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _answer_error})
    app.router.redirect_slashes = False
    return Gatekeeper(app, routes, stage.sites)


async def _answer_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            return text(HTTPStatus.NOT_FOUND, f"nothing here; there are {KNOWN}")
        case HTTPStatus.METHOD_NOT_ALLOWED:
            return text(HTTPStatus.METHOD_NOT_ALLOWED, f"only {headers.get('Allow')} here", **headers)
        case code:
            return text(HTTPStatus(code), error.detail, **headers)
