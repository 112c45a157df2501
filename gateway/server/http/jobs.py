"""`/v1/audio/jobs`: speech that no listener waits for. What is done of it is in gateway/server/jobs/."""

import asyncio
import secrets
import time
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final

from msgspec import Raw, Struct
from msgspec.json import encode
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from voicegate.gateway.server.http.bodies import read_body
from voicegate.gateway.server.http.lists import page_size
from voicegate.gateway.server.http.pages import json
from voicegate.gateway.server.http.refused import Refused
from voicegate.gateway.server.http.requests import check_key, engine_info, take_place
from voicegate.gateway.server.http.stage import Stage
from voicegate.gateway.server.http.visitor import visitor_of
from voicegate.gateway.server.jobs.cutting import Part, parts_of
from voicegate.gateway.server.jobs.jobs import Jobs
from voicegate.gateway.server.jobs.ledger import JobRow, State
from voicegate.gateway.server.jobs.rendering import rendered
from voicegate.gateway.server.jobs.requests import opening_of, shot_of
from voicegate.gateway.server.jobs.settings import JobSettings
from voicegate.gateway.server.jobs.webhooks import is_allowed
from voicegate.gateway.session.opening import find_refusal
from voicegate.protocol.dialects.one_shot import PlainAudio, Problem, RequestViolation, decode
from voicegate.protocol.errors import ErrorCode

PATH: Final = "/v1/audio/jobs"
# A byte of text takes up to three in JSON that is all ASCII; the rest of a body is small.
_JSON_BYTES_PER_BYTE: Final = 3
_MAX_REST_BYTES: Final = 64 * 1024
_MAX_INPUTS: Final = 10_000
_LISTED: Final = 100


class _Asked(Struct):
    input: str | list[str]
    webhook: str | None = None


class JobPages:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._one_cut_at_a_time = asyncio.Lock()

    @property
    def routes(self) -> list[Route]:
        return [
            Route(PATH, self._add, methods=["POST"]),
            Route(PATH, self._list, methods=["GET"]),
            Route(f"{PATH}/{{id}}", self._show, methods=["GET"]),
            Route(f"{PATH}/{{id}}", self._cancel, methods=["DELETE"]),
            Route(f"{PATH}/{{id}}/audio", self._audio, methods=["GET"]),
        ]

    # --- requests; each raises what `refused.ANSWERED` has, and Starlette's ClientDisconnect ----------------

    async def _add(self, request: Request) -> Response:
        jobs, max_bytes = self._jobs, self._jobs.settings.text_bytes
        owner = take_place(request)
        await jobs.check_room(_owner_of(request))
        body = await read_body(request, max_bytes * _JSON_BYTES_PER_BYTE + _MAX_REST_BYTES)
        inputs, webhook, rest = _read(body, jobs.settings)
        row, parts = await self._planned(request, inputs, webhook, rest)
        check_key(owner, self._stage)
        await jobs.add(row, parts)
        return json(self._jobs.described(row), HTTPStatus.ACCEPTED, Location=f"{PATH}/{row.id}")

    async def _list(self, request: Request) -> Response:
        limit = min(page_size(request, "limit"), _LISTED)
        rows = await self._jobs.archive.ask(lambda store: store.ledger.of_owner(_owner_of(request), limit))
        return json({"jobs": [self._jobs.described(row) for row in rows]})

    async def _show(self, request: Request) -> Response:
        return json(self._jobs.described(await self._found(request)))

    async def _cancel(self, request: Request) -> Response:
        """One that has ended is taken away, with its audio."""
        row = await self._found(request)
        if row.ended_s is None:
            await self._jobs.cancel(row)
            return json(self._jobs.described(await self._found(request)))
        await self._jobs.archive.ask(lambda store: store.remove(row.id))
        return json({"id": row.id, "deleted": True})

    async def _audio(self, request: Request) -> Response:
        row = await self._found(request)
        take_place(request)
        part, of_input = _number(request, "part"), _number(request, "input")
        output = shot_of(row.request).output
        if part is None and of_input is None:
            path = await self._jobs.archive.ask(lambda store: store.files.whole(row.id))
            if row.state is not State.DONE:
                raise _unready(f"job {row.id} is {row.state.value}, not done; `part` asks for a part that is")
            await _check_there([path])
            return FileResponse(path, media_type=output.content_type, headers={"Cache-Control": "no-store"})
        files = await self._jobs.archive.ask(lambda store: store.parts(row.id, part, of_input))
        if files is None:
            raise _unready(f"not all of it is made yet; job {row.id} is {row.state.value}")
        if not files:
            raise _unknown(f"job {row.id} has no such part; it has {row.parts} of {row.inputs} inputs, from 0 on")
        await _check_there([file.path for file in files])
        # Read while it is sent, in threads: a text may be a book.
        audio = rendered(files, output, pre_skip_48k=row.pre_skip)
        return StreamingResponse(audio, media_type=output.content_type, headers={"Cache-Control": "no-store"})

    # --- what they need -----------------------------------------------------------------------------------

    @property
    def _jobs(self) -> Jobs:
        """Raises Refused."""
        if self._stage.jobs is None:
            text = "this server keeps no jobs: its operator has set no --jobs-dir"
            raise Refused(Problem(ErrorCode.UNSUPPORTED, text), HTTPStatus.NOT_IMPLEMENTED)
        return self._stage.jobs

    async def _found(self, request: Request) -> JobRow:
        """A job of the caller's. Raises Refused."""
        job_id = request.path_params["id"]
        row = await self._jobs.archive.ask(lambda store: store.ledger.get(job_id))
        if row is None or row.owner != _owner_of(request):
            raise _unknown(f"no job {job_id[:80]!r}; GET {PATH} lists yours")
        return row

    async def _planned(
        self, request: Request, inputs: Sequence[str], webhook: str | None, rest: dict[str, Raw]
    ) -> tuple[JobRow, list[Part]]:
        """Raises Refused, ProtocolViolation."""
        info, shot = engine_info(self._stage), shot_of(encode(rest))
        if not isinstance(shot.framing, PlainAudio):
            raise RequestViolation("a job makes files: leave stream and stream_format out", "stream_format")
        if shot.reference is not None:
            raise RequestViolation("a job takes no recording: make a voice of it, and name that", "ref_audio")
        voice = self._stage.voice_names.resolve(shot.voice, info)
        opening = opening_of(shot, voice, info)
        if (refusal := find_refusal(opening, info)) is not None:
            raise Refused(Problem(refusal.code, refusal.message))
        language = opening.language or info.languages[0]
        async with self._one_cut_at_a_time:
            parts = await asyncio.to_thread(parts_of, inputs, language, has_breaks=shot.is_normalized)
        if not parts:
            raise RequestViolation("input has nothing to say", "input")
        row = JobRow(
            id=secrets.token_hex(12),
            owner=_owner_of(request),
            request=encode({**rest, "voice": voice}),  # whatever aliases mean later
            state=State.QUEUED,
            created_s=time.time(),
            pre_skip=info.pre_skip_48k,
            inputs=len(inputs),
            parts=len(parts),
            characters=sum(len(part.text) for part in parts),
            webhook=webhook,
        )
        return row, parts


def _owner_of(request: Request) -> str:
    """The key's name; a token is its key's. Empty where none is asked for."""
    key = visitor_of(request).key
    return "" if key is None else key.name


def _read(body: bytes, settings: JobSettings) -> tuple[list[str], str | None, dict[str, Raw]]:
    """Its texts, its webhook, and the body without them. Raises RequestViolation."""
    asked = decode(body, _Asked)
    if asked.webhook is not None and not is_allowed(asked.webhook, settings.webhooks):
        raise RequestViolation("the operator of this server allows no such address (--jobs-webhooks)", "webhook")
    inputs = [asked.input] if isinstance(asked.input, str) else asked.input
    if len(inputs) > _MAX_INPUTS:
        raise RequestViolation(f"input has {len(inputs)} texts; a job takes {_MAX_INPUTS}", "input")
    if (num_bytes := sum(len(text.encode()) for text in inputs)) > settings.text_bytes:
        raise RequestViolation(f"input has {num_bytes} bytes of text; a job takes {settings.text_bytes}", "input")
    if (blank := next((number for number, text in enumerate(inputs) if not text.strip()), None)) is not None:
        raise RequestViolation(f"input {blank} has nothing to say", "input")
    rest = {**decode(body, dict[str, Raw]), "input": Raw(b'""')}
    rest.pop("webhook", None)
    # All of it is read again for each part, and with each look for work.
    if (num_bytes := len(encode(rest))) > _MAX_REST_BYTES:
        raise RequestViolation(f"the fields beside input have {num_bytes} bytes; a job takes {_MAX_REST_BYTES}")
    return inputs, asked.webhook, rest


def _number(request: Request, name: str) -> int | None:
    """Raises RequestViolation."""
    asked = request.query_params.get(name)
    if asked is None:
        return None
    if not (asked.isdecimal() and asked.isascii() and len(asked) < 10):
        raise RequestViolation(f"{name} must be a number from 0 on", name)
    return int(asked)


async def _check_there(paths: Sequence[Path]) -> None:
    """It may be deleted at this moment, or be in another gateway's folder. Raises Refused."""
    if not await asyncio.to_thread(lambda: all(path.is_file() for path in paths)):
        raise _unknown("this audio is not there any more")


def _unknown(text: str) -> Refused:
    return Refused(Problem(ErrorCode.BAD_MESSAGE, text, own_name="not_found"), HTTPStatus.NOT_FOUND)


def _unready(text: str) -> Refused:
    return Refused(Problem(ErrorCode.BAD_MESSAGE, text, own_name="not_ready"), HTTPStatus.CONFLICT)
