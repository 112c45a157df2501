"""What there is to choose from, in the forms in which clients of other vendors ask for it."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from voicegate.engine.interface import EngineInfo
from voicegate.gateway.server.http.pages import json, problem, unready
from voicegate.gateway.server.status import Status
from voicegate.protocol.dialects.openai_speech import MODEL_NAMES


class Lists:
    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", self._of(_models)),
            Route("/v1/models/{model}", self._of(_model)),
            Route("/v1/audio/models", self._of(_audio_models)),
            Route("/v1/audio/voices", self._of(_audio_voices)),
        ]

    def _of(self, answer: Callable[[EngineInfo, Request], Response]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            status = self._status()
            if status.info is None:
                return unready(status.unready_reason or "not ready")
            return answer(status.info, request)

        return endpoint


def _names(info: EngineInfo) -> list[str]:
    """The model, and the names by which it is asked for by those who know no other."""
    return [info.model, *MODEL_NAMES]


def _models(info: EngineInfo, _request: Request) -> Response:
    return json({"object": "list", "data": [_described(name) for name in _names(info)]})


def _model(info: EngineInfo, request: Request) -> Response:
    name = request.path_params["model"]
    if name not in _names(info):
        return problem(HTTPStatus.NOT_FOUND, "unknown_model", f"no model {name[:80]!r}; there is {info.model}")
    return json(_described(name))


def _described(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "voicegate"}


def _audio_models(info: EngineInfo, _request: Request) -> Response:
    return json({"models": [{"id": info.model}]})


def _audio_voices(info: EngineInfo, _request: Request) -> Response:
    return json({"voices": [{"id": voice.name, "name": voice.name} for voice in info.voices]})
