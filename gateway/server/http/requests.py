"""A request for speech, of any vendor: who may ask, and what is wrong with it."""

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from voicegate.engine.interface import EngineError, EngineInfo
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.conversations.conversation import Conversation
from voicegate.gateway.server.entrance.callers import caller_of
from voicegate.gateway.server.http.answer import Answer
from voicegate.gateway.server.http.bodies import declared_bytes, read_body, unfit_body
from voicegate.gateway.server.http.clones import problem_of
from voicegate.gateway.server.http.enrolment import MAX_RECORDING_CHARS
from voicegate.gateway.server.http.pages import json
from voicegate.gateway.server.http.refused import Refused, refused_by, retry_header
from voicegate.gateway.server.http.stage import Stage
from voicegate.gateway.server.http.vendors import VENDORS, Vendor, naming_headers
from voicegate.gateway.server.http.visitor import request_id_of, visitor_of
from voicegate.gateway.server.status import RETRY_AFTER_S
from voicegate.gateway.session.adapting import Adapted, adapted
from voicegate.gateway.session.quota import Excess, Owner
from voicegate.protocol.dialects.one_shot import OneShot, Problem, Reference
from voicegate.protocol.dialects.openai_speech import OpenAiSpeech
from voicegate.protocol.errors import ErrorCode, ProtocolViolation
from voicegate.protocol.messages import Open, SessionMessage

# An answer says this of a clone, whose name is not told.
_CLONED: Final = "ref_audio"

log = get_logger(__name__)


def speech_routes(stage: Stage) -> list[Route]:
    return [Route(path, SpeechEndpoint(stage, path, vendor), methods=["POST"]) for path, vendor in VENDORS.items()]


@dataclass(frozen=True, slots=True)
class _Understood:
    owner: Owner
    info: EngineInfo
    shot: OneShot
    made: Adapted
    rest: Sequence[SessionMessage]
    is_cloned: bool


class SpeechEndpoint:
    def __init__(self, stage: Stage, path: str, vendor: Vendor) -> None:
        self._stage = stage
        self._path = path
        self._vendor = vendor
        self._takes_recordings = isinstance(vendor, OpenAiSpeech)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        async with AsyncExitStack() as held:
            try:
                understood = await self._understand(request, held)
            except Refused as refused:
                code, request_id = refused.problem.code.value, request_id_of(request)
                self._stage.services.meters.note_error(code)
                log.info("a request is refused", path=self._path, code=code, session=request_id)
                await self._error(refused.problem, refused.status, request_id)(scope, receive, send)
                return
            answer = self._answer(request, understood)
            with self._stage.guests.present(answer):
                await answer(scope, receive, send)

    async def _understand(self, request: Request, held: AsyncExitStack) -> _Understood:
        """`held` holds a clone that it speaks with. Raises Refused, and Starlette's ClientDisconnect."""
        owner, clone = admit(request, self._stage), None
        async with AsyncExitStack() as upload:
            shot = await self._read(request, owner, upload)
            if shot.reference is not None:
                clone = await self._clone(request, shot.reference, owner, held)
                shot = replace(shot, reference=None)  # it may be long, and the answer too
        info = engine_info(self._stage)
        check_key(owner, self._stage)
        voice = clone or self._stage.voice_names.resolve(shot.voice, info)
        opening, *rest = self._messages(shot, voice)
        assert isinstance(opening, Open)
        return _Understood(owner, info, shot, adapted(opening, info), rest, clone is not None)

    async def _clone(self, request: Request, reference: Reference, owner: Owner, held: AsyncExitStack) -> str:
        """Raises Refused."""
        self._stage.enrolment.check(request)
        engine_info(self._stage)
        try:
            return await held.enter_async_context(self._stage.clones.voice_of(reference, owner))
        except EngineError as error:
            raise Refused(problem_of(error)) from error

    def _answer(self, request: Request, understood: _Understood) -> Answer:
        caller = caller_of(request.headers.getlist, f"?{request.url.query}")
        owner, made = understood.owner, understood.made
        conversation = Conversation(
            self._stage.services, session_id=request_id_of(request), info=understood.info, owner=owner, caller=caller
        )
        conversation.log.info("request opened", path=self._path, owner=owner.address)
        conversation.note_not_followed(made.not_followed)
        return Answer(
            understood.shot,
            [made.message, *understood.rest],
            conversation,
            headers={**_not_followed_header(made), **({"x-voice": _CLONED} if understood.is_cloned else {})},
            error=self._error,
            abort=visitor_of(request).abort,
        )

    async def _read(self, request: Request, owner: Owner, upload: AsyncExitStack) -> OneShot:
        """Raises Refused, and Starlette's ClientDisconnect."""
        with refusing_bodies():
            body = await self._body(request, owner, upload)
            shot = self._vendor.read(body, request.path_params, request.query_params)
        max_bytes = self._stage.services.limits.context_text_bytes
        if (num_bytes := len(shot.text.encode())) > max_bytes:
            raise Refused(Problem(ErrorCode.BAD_MESSAGE, f"text of {num_bytes} bytes; a request takes {max_bytes}"))
        return shot

    async def _body(self, request: Request, owner: Owner, upload: AsyncExitStack) -> bytes:
        """`upload` holds a place where it is as long as recordings are. Raises Refused."""
        max_bytes, enrolment = self._stage.max_body_bytes, self._stage.enrolment
        is_long = declared_bytes(request) > max_bytes
        if not self._takes_recordings or not (is_long or "Transfer-Encoding" in request.headers):
            return await read_body(request, max_bytes)
        if is_long and not enrolment.is_allowed:
            text = f"the body is too large; at most {max_bytes} bytes. Recordings (ref_audio) need --enrolment"
            raise unfit_body(text, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        try:
            enrolment.check(request)  # before it has a place: a key's tokens would keep them from the key
        except Refused:
            if is_long:
                raise
            return await read_body(request, max_bytes)
        await upload.enter_async_context(enrolment.upload(owner))
        return await read_body(request, max_bytes + MAX_RECORDING_CHARS)

    def _messages(self, shot: OneShot, voice: str) -> list[SessionMessage]:
        """Raises Refused."""
        with refusing_bodies():
            return list(shot.messages(voice, self._stage.services.limits.text_bytes))

    def _error(self, problem: Problem, status: HTTPStatus, request_id: str) -> Response:
        body = self._vendor.error_body(problem, status, request_id)
        response = json(body, status, **retry_header(problem))
        response.headers.update(naming_headers(self._path, request_id, problem.message))
        return response


def admit(request: Request, stage: Stage) -> Owner:
    """As a socket is, before anything is read, and for as long as the connection lasts. Raises Refused."""
    status = stage.status()
    if status.refusal is not None:
        raise Refused(Problem(ErrorCode.OVERLOADED, status.refusal, status.retry_after_s * 1000))
    return take_place(request)


def take_place(request: Request) -> Owner:
    """A socket's, whether or not there is room for speech. Raises Refused."""
    visitor = visitor_of(request)
    owner = visitor.admit(request.headers.getlist("X-Forwarded-For"), visitor.key)
    if isinstance(owner, Excess):
        code = ErrorCode.TOO_MANY_CONTEXTS if owner.is_of_owner else ErrorCode.OVERLOADED
        raise Refused(Problem(code, str(owner), RETRY_AFTER_S * 1000))
    return owner


def check_key(owner: Owner, stage: Stage) -> None:
    """It may have been taken back while the body came. Raises Refused."""
    if not stage.access.still_admits(owner.key):
        raise Refused(Problem(ErrorCode.UNAUTHORIZED, "the key of this request was taken back"))


@contextmanager
def refusing_bodies() -> Iterator[None]:
    """Around what reads a body. Raises Refused for what is wrong in it."""
    try:
        yield
    except ProtocolViolation as violation:
        raise refused_by(violation) from violation


def engine_info(stage: Stage) -> EngineInfo:
    """As it is once the body has come, which takes its time. Raises Refused."""
    status = stage.status()
    if status.unready_reason is not None:
        raise Refused(Problem(ErrorCode.OVERLOADED, status.unready_reason, status.retry_after_s * 1000))
    assert status.info is not None, "the engine is ready"
    return status.info


def _not_followed_header(made: Adapted) -> dict[str, str]:
    return {"x-not-followed": ", ".join(made.not_followed)} if made.not_followed else {}
