"""`/v1/audio/voices`: voices as pickers of other vendors' clients list them, and as vLLM-Omni takes them."""

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from voicegate.engine.interface import UnknownVoice
from voicegate.gateway.server.http.pages import json
from voicegate.gateway.server.http.refused import known
from voicegate.gateway.server.http.stage import Stage
from voicegate.gateway.server.http.voices import Voices


class AudioVoices:
    def __init__(self, stage: Stage, voices: Voices) -> None:
        self._stage = stage
        self._voices = voices

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/v1/audio/voices", self._list),
            Route("/v1/audio/voices", self._add, methods=["POST"]),
            Route("/v1/audio/voices/{name}", self._remove, methods=["DELETE"]),
        ]

    async def _list(self, _request: Request) -> Response:
        names = [voice.name for voice in known(self._stage.status()).voices]
        voices = [{"id": name, "name": name} for name in names]
        uploaded = self._voices.uploaded
        return json({"voices": voices, "uploaded_voices": [uploaded[name] for name in names if name in uploaded]})

    async def _add(self, request: Request) -> Response:
        """There one of the same name is always replaced."""
        new, added = await self._voices.add(request, is_replacing=True)
        uploaded = self._voices.uploaded[added.name]
        transcript = {"ref_text": new.transcript} if new.transcript else {}
        return json({"success": True, "voice": {**uploaded, **transcript, "remark": added.remark}})

    async def _remove(self, request: Request) -> Response:
        name = request.path_params["name"]
        try:
            await self._voices.remove(request, name)
        except UnknownVoice:
            return json({"success": False, "error": f"Voice {name[:80]!r} not found"}, HTTPStatus.NOT_FOUND)
        return json({"success": True, "message": f"Voice {name!r} deleted successfully"})
