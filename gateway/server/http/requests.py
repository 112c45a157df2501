"""A request for speech, of any vendor: who may ask, and what is wrong with it."""

from http import HTTPStatus
from math import ceil

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from voicegate.engine.interface import EngineInfo
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.conversations.conversation import Conversation
from voicegate.gateway.server.entrance.callers import caller_of
from voicegate.gateway.server.http.answer import Answer
from voicegate.gateway.server.http.bodies import BodyRefused, read_body
from voicegate.gateway.server.http.pages import json
from voicegate.gateway.server.http.stage import Stage
from voicegate.gateway.server.http.vendors import VENDORS, Vendor, naming_headers
from voicegate.gateway.server.http.visitor import request_id_of, visitor_of
from voicegate.gateway.server.status import RETRY_AFTER_S
from voicegate.gateway.session.adapting import Adapted, adapted
from voicegate.gateway.session.quota import Excess, Owner
from voicegate.protocol.dialects.one_shot import OneShot, Problem, RequestViolation
from voicegate.protocol.errors import ErrorCode, ProtocolViolation
from voicegate.protocol.messages import Open, SessionMessage

log = get_logger(__name__)


def speech_routes(stage: Stage) -> list[Route]:
    return [Route(path, SpeechEndpoint(stage, path, vendor), methods=["POST"]) for path, vendor in VENDORS.items()]


class Refused(Exception):
    def __init__(self, problem: Problem, status: HTTPStatus | None = None) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.status = problem.status if status is None else status


class SpeechEndpoint:
    def __init__(self, stage: Stage, path: str, vendor: Vendor) -> None:
        self._stage = stage
        self._path = path
        self._vendor = vendor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            owner = admit(request, self._stage)
            shot = await self._read(request)
            info = engine_info(self._stage)
            self._check_key(owner)
            voice = self._stage.voice_names.resolve(shot.voice, info)
            opening, *rest = self._messages(shot, voice)
            assert isinstance(opening, Open)
            made = adapted(opening, info)
        except Refused as refused:
            code, request_id = refused.problem.code.value, request_id_of(request)
            self._stage.services.meters.note_error(code)
            log.info("a request is refused", path=self._path, code=code, session=request_id)
            await self._error(refused.problem, refused.status, request_id)(scope, receive, send)
            return
        caller = caller_of(request.headers.getlist, f"?{request.url.query}")
        conversation = Conversation(
            self._stage.services, session_id=request_id_of(request), info=info, owner=owner, caller=caller
        )
        conversation.log.info("request opened", path=self._path, owner=owner.address)
        conversation.note_not_followed(made.not_followed)
        answer = Answer(
            shot,
            [made.message, *rest],
            conversation,
            headers={**naming_headers(self._path, conversation.session_id), **_not_followed_header(made)},
            error=self._error,
            abort=visitor_of(request).abort,
        )
        with self._stage.guests.present(answer):
            await answer(scope, receive, send)

    async def _read(self, request: Request) -> OneShot:
        """Raises Refused, and Starlette's ClientDisconnect."""
        try:
            body = await read_body(request, self._stage.max_body_bytes)
            shot = self._vendor.read(body, request.path_params, request.query_params)
        except BodyRefused as refused:
            raise Refused(Problem(ErrorCode.BAD_MESSAGE, str(refused)), refused.status) from refused
        except ProtocolViolation as violation:
            raise Refused(_problem_of(violation)) from violation
        max_bytes = self._stage.services.limits.context_text_bytes
        if (num_bytes := len(shot.text.encode())) > max_bytes:
            raise Refused(Problem(ErrorCode.BAD_MESSAGE, f"text of {num_bytes} bytes; a request takes {max_bytes}"))
        return shot

    def _check_key(self, owner: Owner) -> None:
        """It may have been taken back while the body came. Raises Refused."""
        if not self._stage.access.still_admits(owner.key):
            raise Refused(Problem(ErrorCode.UNAUTHORIZED, "the key of this request was taken back"))

    def _messages(self, shot: OneShot, voice: str) -> list[SessionMessage]:
        """Raises Refused."""
        try:
            return list(shot.messages(voice, self._stage.services.limits.text_bytes))
        except ProtocolViolation as violation:
            raise Refused(_problem_of(violation)) from violation

    def _error(self, problem: Problem, status: HTTPStatus, request_id: str) -> Response:
        body = self._vendor.error_body(problem, status, request_id)
        response = json(body, status, X_Request_Id=request_id, **retry_header(problem))
        response.headers.update(naming_headers(self._path, request_id, problem.message))
        return response


def admit(request: Request, stage: Stage) -> Owner:
    """As a socket is, before anything is read, and for as long as the connection lasts. Raises Refused."""
    status = stage.status()
    if status.refusal is not None:
        raise Refused(Problem(ErrorCode.OVERLOADED, status.refusal, status.retry_after_s * 1000))
    visitor = visitor_of(request)
    owner = visitor.admit(request.headers.getlist("X-Forwarded-For"), visitor.key)
    if isinstance(owner, Excess):
        code = ErrorCode.TOO_MANY_CONTEXTS if owner.is_of_owner else ErrorCode.OVERLOADED
        raise Refused(Problem(code, str(owner), RETRY_AFTER_S * 1000))
    return owner


def engine_info(stage: Stage) -> EngineInfo:
    """As it is once the body has come, which takes its time. Raises Refused."""
    status = stage.status()
    if status.unready_reason is not None:
        raise Refused(Problem(ErrorCode.OVERLOADED, status.unready_reason, status.retry_after_s * 1000))
    assert status.info is not None, "the engine is ready"
    return status.info


def retry_header(problem: Problem) -> dict[str, str]:
    """Also of a key's own excess, which a native client resolves by itself: others' SDKs heed nothing else."""
    if problem.retry_after_ms is not None:
        return {"Retry_After": str(ceil(problem.retry_after_ms / 1000))}
    return {"Retry_After": str(RETRY_AFTER_S)} if problem.code is ErrorCode.TOO_MANY_CONTEXTS else {}


def _not_followed_header(made: Adapted) -> dict[str, str]:
    return {"x-not-followed": ", ".join(made.not_followed)} if made.not_followed else {}


def _problem_of(violation: ProtocolViolation) -> Problem:
    field = violation.field if isinstance(violation, RequestViolation) else None
    return Problem(violation.code, violation.message, field=field)
