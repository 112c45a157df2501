"""The ASGI app: every HTTP request but a WebSocket's handshake."""

from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from voicegate.gateway.server.http.audio_voices import AudioVoices
from voicegate.gateway.server.http.gatekeeper import OPEN_PATHS, Gatekeeper, methods_at
from voicegate.gateway.server.http.jobs import JobPages
from voicegate.gateway.server.http.lists import Lists
from voicegate.gateway.server.http.openapi import document
from voicegate.gateway.server.http.pages import KNOWN, Pages, json, missing, no_handshake
from voicegate.gateway.server.http.reading import Reading
from voicegate.gateway.server.http.refused import ANSWERED, answer_refusal
from voicegate.gateway.server.http.requests import speech_routes
from voicegate.gateway.server.http.stage import Stage
from voicegate.gateway.server.http.tokens import Tokens
from voicegate.gateway.server.http.voices import Voices
from voicegate.protocol.dialects.catalogue import has_dialect


def build_app(stage: Stage) -> ASGIApp:
    body = document(asks_for_keys=stage.access.asks_for_keys, open_paths=OPEN_PATHS)

    async def show_document(_request: Request) -> Response:
        return json(body)

    async def answer_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path
        match error.status_code:
            case HTTPStatus.NOT_FOUND | HTTPStatus.METHOD_NOT_ALLOWED if request.method == "GET" and has_dialect(path):
                return no_handshake(request)
            case HTTPStatus.NOT_FOUND:
                return missing(request, HTTPStatus.NOT_FOUND, f"nothing here; there are {KNOWN}")
            case HTTPStatus.METHOD_NOT_ALLOWED:
                allowed = methods_at(path, routes)
                return missing(request, HTTPStatus.METHOD_NOT_ALLOWED, f"only {allowed} here", Allow=allowed)
            case code:
                return missing(request, HTTPStatus(code), error.detail)

    voices = Voices(stage)
    routes = [
        *Pages(stage.status, stage.services.engine.stats).routes,
        *Lists(stage.status).routes,
        *voices.routes,
        *AudioVoices(stage, voices).routes,
        *speech_routes(stage),
        *JobPages(stage).routes,
        *Tokens(stage).routes,
        *Reading(stage).routes,
        Route("/openapi.json", show_document),
    ]
    handlers = {HTTPException: answer_error, **dict.fromkeys(ANSWERED, answer_refusal)}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Gatekeeper(app, routes, stage.sites, stage.access, stage.services.meters)
