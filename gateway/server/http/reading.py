"""`POST /v1/reading`: what would be said of a text, without saying it. For authors of texts."""

import asyncio
from dataclasses import fields
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from voicegate.engine.dictionary import Dictionary
from voicegate.engine.preview import ReadClause, preview
from voicegate.gateway.server.http.bodies import read_body
from voicegate.gateway.server.http.pages import json
from voicegate.gateway.server.http.refused import Refused, known
from voicegate.gateway.server.http.stage import Stage
from voicegate.gateway.session.opening import find_refusal
from voicegate.protocol.dialects.one_shot import Problem, decode
from voicegate.protocol.messages import Open

# Higher -> a longer text takes a processor from speech, some 10 us a character.
MAX_CHARS: Final = 8192
_MAX_BODY_BYTES: Final = 128 * 1024


class _Asked(msgspec.Struct):
    text: Annotated[str, msgspec.Meta(max_length=MAX_CHARS)]
    language: str | None = None
    normalize: bool = True
    pronunciations: dict[str, str] = {}


class Reading:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._one_at_a_time = asyncio.Lock()

    @property
    def routes(self) -> list[Route]:
        return [Route("/v1/reading", self._read, methods=["POST"])]

    async def _read(self, request: Request) -> Response:
        info = known(self._stage.status())
        asked = decode(await read_body(request, _MAX_BODY_BYTES), _Asked)
        opening = Open(context="reading", language=asked.language, pronunciations=asked.pronunciations)
        if (reason := find_refusal(opening, info)) is not None:
            raise Refused(Problem(reason.code, reason.message), HTTPStatus.BAD_REQUEST)
        own = (Dictionary(asked.pronunciations),) if asked.pronunciations else ()
        shared = self._stage.services.pronunciations.dictionary
        dictionaries = own if shared is None else (*own, shared)
        language = asked.language or info.languages[0]
        async with self._one_at_a_time:
            clauses = await asyncio.to_thread(
                preview, asked.text, language, dictionaries=dictionaries, is_normalized=asked.normalize
            )
        return json({"language": language, "clauses": [_shown(clause) for clause in clauses]})


def _shown(clause: ReadClause) -> dict[str, object]:
    return {field.name: getattr(clause, field.name) for field in fields(clause)}
