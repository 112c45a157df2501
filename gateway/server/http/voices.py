"""Voices over the wire: listed for everybody, added and taken away where the server allows it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from voicegate.engine.checks import check_new_voice
from voicegate.engine.interface import EngineInfo, NewVoice, VoiceConflict, VoiceInfo
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.http.lists import find_voice, page_size, voices_with
from voicegate.gateway.server.http.pages import json, unknown_voice
from voicegate.gateway.server.http.refused import known
from voicegate.gateway.server.http.requests import admit, check_key, engine_info
from voicegate.gateway.server.http.stage import Stage
from voicegate.gateway.server.http.voice_forms import Upload, read_form

_UNKNOWN_TYPE: Final = "application/octet-stream"

log = get_logger(__name__)


class Voices:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.uploaded: dict[str, dict[str, object]] = {}  # by name: what came by any path since the start
        self._on_their_way: list[str] = []  # names that the engine is asked for; one may be there twice

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/v1/voices", self._list),
            Route("/v1/voices", self._add, methods=["POST"]),
            Route("/v1/voices/add", self._add, methods=["POST"]),  # as ElevenLabs has it
            Route("/v2/voices", self._search),  # as ElevenLabs has it
            Route("/v1/voices/{name}", self._show),
            Route("/v1/voices/{name}", self._remove, methods=["DELETE"]),
        ]

    async def _list(self, _request: Request) -> Response:
        info = known(self._stage.status())
        voices = [_described(voice) for voice in info.voices]
        takes_voices = self._stage.enrolment.is_allowed
        return json({"default": info.default_voice, "voices": voices, "takes_voices": takes_voices})

    async def _search(self, request: Request) -> Response:
        """Voices whose name or description has the words that are looked for; a page's token is its last name."""
        found = voices_with(request.query_params.get("search", ""), known(self._stage.status()))
        names = [voice.name for voice in found]
        token = request.query_params.get("next_page_token", "")
        rest = found[names.index(token) + 1 if token in names else 0 :]
        page = rest[: page_size(request, "page_size")]
        has_more = len(page) < len(rest)
        next_page = {"next_page_token": page[-1].name} if has_more else {}
        voices = [_described(voice) for voice in page]
        return json({"voices": voices, "has_more": has_more, "total_count": len(found), **next_page})

    async def _show(self, request: Request) -> Response:
        voice = find_voice(known(self._stage.status()), request)
        return unknown_voice(request) if voice is None else json(_described(voice))

    async def _add(self, request: Request) -> Response:
        _, added = await self.add(request)
        answer = {**_described(added), "requires_verification": False, "remark": added.remark}
        return json(answer, HTTPStatus.CREATED)

    async def add(self, request: Request, *, is_replacing: bool = False) -> tuple[NewVoice, VoiceInfo]:
        """`is_replacing`: whatever the form says. Raises Refused, EngineError, and Starlette's ClientDisconnect."""
        enrolment = self._stage.enrolment
        enrolment.check(request)
        owner = admit(request, self._stage)
        async with enrolment.upload(owner):
            upload = await read_form(request)
            check_key(owner, self._stage)
            new = replace(upload.voice, is_replacing=upload.voice.is_replacing or is_replacing)
            async with enrolment.making(owner):
                added = await self._make(new)
        self.uploaded[added.name] = _described_upload(upload)
        log.info("voice added", voice=added.name, **({"consent": upload.consent} if upload.consent else {}))
        return new, added

    async def _make(self, new: NewVoice) -> VoiceInfo:
        """Raises Refused, EngineError."""
        with self._place(new, engine_info(self._stage)):
            while True:
                try:
                    return await self._stage.services.engine.add_voice(new)
                except VoiceConflict:  # no room is left, for it was seen before that the name is free
                    if not await self._stage.clones.give_way():
                        raise

    @contextmanager
    def _place(self, new: NewVoice, info: EngineInfo) -> Iterator[None]:
        """Its own for as long as it is made. Raises VoiceRefused, VoiceConflict."""
        check_new_voice(new, info)
        names = {voice.name for voice in info.voices}.union(self._on_their_way)
        if new.name not in names and len(names) >= self._stage.enrolment.max_voices:
            counted = "voices, with those on their way," if self._on_their_way else "voices"
            raise VoiceConflict(f"{len(names)} {counted} are all that there may be; take one away first")
        self._on_their_way.append(new.name)
        try:
            yield
        finally:
            self._on_their_way.remove(new.name)

    async def _remove(self, request: Request) -> Response:
        await self.remove(request, request.path_params["name"])
        return json({"status": "ok"})

    async def remove(self, request: Request, name: str) -> None:
        """Raises Refused, EngineError."""
        self._stage.enrolment.check(request)
        await self._stage.services.engine.remove_voice(name)
        self.uploaded.pop(name, None)
        log.info("voice removed", voice=name)


def _described_upload(upload: Upload) -> dict[str, object]:
    """In vLLM-Omni's words."""
    new = upload.voice
    described = {"speaker_description": new.description} if new.description else {}
    return {
        "name": new.name,
        "consent": upload.consent,
        "created_at": int(time.time()),
        "mime_type": upload.media_type or _UNKNOWN_TYPE,
        "file_size": len(new.recording),
        **described,
    }


def _described(voice: VoiceInfo) -> dict[str, object]:
    """In our words, and beside them in ElevenLabs'."""
    labels = {} if voice.language is None else {"language": voice.language}
    ours = {"name": voice.name, "description": voice.description, "language": voice.language}
    return {**ours, "voice_id": voice.name, "category": "premade", "labels": labels}
