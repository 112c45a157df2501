"""`/v1/audio/voices`: voices as pickers of other vendors' clients list them, and as vLLM-Omni takes them."""

import time
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from voicegate.engine.interface import EngineError, UnknownVoice
from voicegate.gateway.server.http.pages import json, unready
from voicegate.gateway.server.http.refused import Refused
from voicegate.gateway.server.http.stage import Stage
from voicegate.gateway.server.http.voice_forms import NewVoice
from voicegate.gateway.server.http.voices import Voices, refusal_of

_UNKNOWN_TYPE: Final = "application/octet-stream"


class AudioVoices:
    def __init__(self, stage: Stage, voices: Voices) -> None:
        self._stage = stage
        self._voices = voices
        self._uploaded: dict[str, dict[str, object]] = {}  # by name: what came here since the start

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/v1/audio/voices", self._list),
            Route("/v1/audio/voices", self._add, methods=["POST"]),
            Route("/v1/audio/voices/{name}", self._remove, methods=["DELETE"]),
        ]

    async def _list(self, request: Request) -> Response:
        status = self._stage.status()
        if status.info is None:
            return unready(request, status.unready_reason or "not ready")
        names = [voice.name for voice in status.info.voices]
        voices = [{"id": name, "name": name} for name in names]
        return json({"voices": voices, "uploaded_voices": [self._uploaded[n] for n in names if n in self._uploaded]})

    async def _add(self, request: Request) -> Response:
        """There one of the same name is always replaced."""
        try:
            new, added = await self._voices.add(request, is_replacing=True)
        except (Refused, EngineError) as error:
            return refusal_of(request, error)
        uploaded = _uploaded(new)
        self._uploaded[added.name] = uploaded
        transcript = {"ref_text": new.transcript} if new.transcript else {}
        return json({"success": True, "voice": {**uploaded, **transcript, "remark": added.remark}})

    async def _remove(self, request: Request) -> Response:
        name = request.path_params["name"]
        try:
            await self._voices.remove(request, name)
        except UnknownVoice:
            return json({"success": False, "error": f"Voice {name[:80]!r} not found"}, HTTPStatus.NOT_FOUND)
        except (Refused, EngineError) as error:
            return refusal_of(request, error)
        self._uploaded.pop(name, None)
        return json({"success": True, "message": f"Voice {name!r} deleted successfully"})


def _uploaded(new: NewVoice) -> dict[str, object]:
    described = {"speaker_description": new.description} if new.description else {}
    return {
        "name": new.name,
        "consent": new.consent,
        "created_at": int(time.time()),
        "mime_type": new.media_type or _UNKNOWN_TYPE,
        "file_size": len(new.recording),
        **described,
    }
