"""Voices over the wire: listed for everybody, added and taken away where the server allows it."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from voicegate.engine.interface import (
    EngineError,
    EngineInfo,
    EngineStopped,
    Overloaded,
    UnknownVoice,
    Unsupported,
    VoiceConflict,
    VoiceInfo,
    VoiceRefused,
    check_new_voice,
)
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.http.bodies import BodyRefused, read_body
from voicegate.gateway.server.http.enrolment import MAX_RECORDING_BYTES
from voicegate.gateway.server.http.lists import page_size, voices_with
from voicegate.gateway.server.http.pages import json, problem, unknown_voice, unready
from voicegate.gateway.server.http.refused import Refused
from voicegate.gateway.server.http.requests import admit, engine_info, retry_header
from voicegate.gateway.server.http.stage import Stage
from voicegate.protocol.dialects.one_shot import Problem
from voicegate.protocol.errors import ErrorCode

_MAX_FIELDS: Final = 16
_MAX_FIELD_BYTES: Final = 16 * 1024
# Of a form that is read at a time: a millisecond of the least readable ones. Higher holds up other clients' packets.
_FORM_PIECE_BYTES: Final = 64 * 1024
_RECORDING_FIELDS: Final = ("recording", "file", "files")  # ours; what others call it

log = get_logger(__name__)


class Voices:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
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

    async def _list(self, request: Request) -> Response:
        status = self._stage.status()
        if status.info is None:
            return unready(request, status.unready_reason or "not ready")
        voices = [_described(voice) for voice in status.info.voices]
        return json({"default": status.info.default_voice, "voices": voices})

    async def _search(self, request: Request) -> Response:
        """Of those whose name or description has the words that are looked for; a page's token is its last name."""
        status = self._stage.status()
        if status.info is None:
            return unready(request, status.unready_reason or "not ready")
        found = voices_with(request.query_params.get("search", ""), status.info)
        names = [voice.name for voice in found]
        token = request.query_params.get("next_page_token", "")
        rest = found[names.index(token) + 1 if token in names else 0 :]
        page = rest[: page_size(request, "page_size")]
        has_more = len(page) < len(rest)
        next_page = {"next_page_token": page[-1].name} if has_more else {}
        voices = [_described(voice) for voice in page]
        return json({"voices": voices, "has_more": has_more, "total_count": len(found), **next_page})

    async def _show(self, request: Request) -> Response:
        status, name = self._stage.status(), request.path_params["name"]
        if status.info is None:
            return unready(request, status.unready_reason or "not ready")
        for voice in status.info.voices:
            if voice.name == name:
                return json(_described(voice))
        return unknown_voice(request)

    async def _add(self, request: Request) -> Response:
        enrolment = self._stage.enrolment
        try:
            enrolment.check(request)
            owner = admit(request, self._stage)
            async with enrolment.upload(owner):
                new = await _read_form(request)
                if not self._stage.access.still_admits(owner.key):  # it may have been taken back while the body came
                    raise Refused(Problem(ErrorCode.UNAUTHORIZED, "the key of this request was taken back"))
                async with enrolment.making(owner):
                    added = await self._make(new)
        except Refused as refused:
            return _refusal(request, refused)
        except EngineError as error:
            return _engine_refusal(request, error)
        log.info("voice added", voice=added.name)
        answer = {**_described(added), "requires_verification": False, "remark": added.remark}
        return json(answer, HTTPStatus.CREATED)

    async def _make(self, new: "_NewVoice") -> VoiceInfo:
        """Raises Refused, EngineError."""
        with self._place(new, engine_info(self._stage)):
            while True:
                try:
                    return await self._ask(new)
                except VoiceConflict:  # no room is left, for it was seen before that the name is free
                    if not await self._stage.clones.give_way():
                        raise

    async def _ask(self, new: "_NewVoice") -> VoiceInfo:
        return await self._stage.services.engine.add_voice(
            new.name,
            new.recording,
            transcript=new.transcript,
            description=new.description,
            replace=new.is_replacing,
        )

    @contextmanager
    def _place(self, new: "_NewVoice", info: EngineInfo) -> Iterator[None]:
        """Its own for as long as it is made. Raises VoiceRefused, VoiceConflict."""
        check_new_voice(new.name, info, replace=new.is_replacing)
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
        name = request.path_params["name"]
        try:
            self._stage.enrolment.check(request)
            await self._stage.services.engine.remove_voice(name)
        except Refused as refused:
            return _refusal(request, refused)
        except EngineError as error:
            return _engine_refusal(request, error)
        log.info("voice removed", voice=name)
        return json({"status": "ok"})


def _described(voice: VoiceInfo) -> dict[str, object]:
    """In our words, and beside them in ElevenLabs'."""
    labels = {} if voice.language is None else {"language": voice.language}
    ours = {"name": voice.name, "description": voice.description, "language": voice.language}
    return {**ours, "voice_id": voice.name, "category": "premade", "labels": labels}


# --- forms ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _NewVoice:
    name: str
    recording: bytes
    transcript: str
    description: str
    is_replacing: bool


class _FormInMemory(MultiPartParser):
    """Starlette's own writes a larger recording to disk, which may be full or not writable."""

    spool_max_size = MAX_RECORDING_BYTES


async def _read_form(request: Request) -> _NewVoice:
    """Raises Refused."""
    try:
        body = await read_body(request, MAX_RECORDING_BYTES)
    except BodyRefused as refused:
        raise _bad(str(refused), refused.status) from refused
    if not request.headers.get("Content-Type", "").lower().startswith("multipart/form-data"):
        raise _no_recording()
    limits = {"max_files": 1, "max_fields": _MAX_FIELDS, "max_part_size": _MAX_FIELD_BYTES}
    try:
        form = await _FormInMemory(request.headers, _pieces(body), **limits).parse()
    except MultiPartException as error:
        raise _bad(error.message) from error
    except UnicodeError as error:  # of charsets that only Python has
        raise _bad(f"the form is not in the charset that it names: {error}") from error
    try:
        return _NewVoice(
            name=_field(form, "name"),
            recording=await _recording(form),
            transcript=_field(form, "transcript"),
            description=_field(form, "description"),
            is_replacing=_field(form, "replace").lower() in ("true", "1", "yes", "on"),
        )
    finally:
        await form.close()


async def _pieces(body: bytes) -> AsyncGenerator[bytes]:
    """With a turn of the others behind each."""
    for start in range(0, len(body), _FORM_PIECE_BYTES):
        yield body[start : start + _FORM_PIECE_BYTES]
        await asyncio.sleep(0)


def _field(form: FormData, name: str) -> str:
    value = form.get(name, "")
    return value if isinstance(value, str) else ""


async def _recording(form: FormData) -> bytes:
    """Raises Refused."""
    for name in _RECORDING_FIELDS:
        if isinstance(file := form.get(name), UploadFile):
            return await file.read()
    raise _no_recording()


# --- refusals ---------------------------------------------------------------------------------------------


def _bad(message: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> Refused:
    return Refused(Problem(ErrorCode.BAD_MESSAGE, message), status)


def _no_recording() -> Refused:
    return _bad("the form has no `recording`, a sound file: curl -F name=anna -F recording=@anna.wav ...")


def _busy(message: str) -> Refused:
    return Refused(Problem(ErrorCode.OVERLOADED, message, retry_after_ms=1000))


def _refusal(request: Request, refused: Refused) -> Response:
    headers = retry_header(refused.problem)
    return problem(request, refused.status, refused.problem.code.value, refused.problem.message, **headers)


def _engine_refusal(request: Request, error: EngineError) -> Response:
    match error:
        case UnknownVoice():
            status, code = HTTPStatus.NOT_FOUND, "unknown_voice"
        case VoiceConflict():
            status, code = HTTPStatus.CONFLICT, "voice_refused"
        case VoiceRefused():
            status, code = HTTPStatus.UNPROCESSABLE_ENTITY, "voice_refused"
        case Unsupported():
            status, code = HTTPStatus.NOT_IMPLEMENTED, "unsupported"
        case Overloaded():
            return _refusal(request, Refused(Problem(ErrorCode.OVERLOADED, str(error), error.retry_after_ms)))
        case EngineStopped():
            return _refusal(request, _busy(str(error)))
        case _:
            status, code = HTTPStatus.INTERNAL_SERVER_ERROR, "engine_failed"
    return problem(request, status, code, str(error))
