"""A request that is not done: raised wherever that shows, and answered here, but for speech's in its vendor's form."""

from http import HTTPStatus
from math import ceil
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from voicegate.engine.interface import (
    EngineError,
    EngineInfo,
    EngineStopped,
    Overloaded,
    UnknownVoice,
    Unsupported,
    VoiceConflict,
    VoiceRefused,
)
from voicegate.gateway.server.http.pages import missing, problem
from voicegate.gateway.server.jobs.settings import JobsFull, NoSpace, QueueDown
from voicegate.gateway.server.status import RETRY_AFTER_S, Status
from voicegate.protocol.dialects.one_shot import Problem, RequestViolation
from voicegate.protocol.errors import ErrorCode, ProtocolViolation

# For jobs to end, a disk to have space, a queue to answer.
_JOBS_RETRY_MS: Final = 10_000


class Refused(Exception):
    def __init__(self, problem: Problem, status: HTTPStatus | None = None) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.status = problem.status if status is None else status


class NotReady(Exception):
    """No engine is there yet, whose voices and models could be told."""


ANSWERED = (Refused, NotReady, EngineError, ProtocolViolation, JobsFull, NoSpace, QueueDown)


def known(status: Status) -> EngineInfo:
    """Raises NotReady."""
    if status.info is None:
        raise NotReady(status.unready_reason or "not ready")
    return status.info


def refused_by(violation: ProtocolViolation) -> Refused:
    field = violation.field if isinstance(violation, RequestViolation) else None
    return Refused(Problem(violation.code, violation.message, field=field))


async def answer_refusal(request: Request, error: Exception) -> Response:
    """To one of `ANSWERED`."""
    match error:
        case NotReady():
            retry = str(RETRY_AFTER_S)
            status, code = HTTPStatus.SERVICE_UNAVAILABLE, ErrorCode.OVERLOADED
            return missing(request, status, str(error), code=code, Retry_After=retry)
        case ProtocolViolation():
            return _answer(request, refused_by(error))
        case Refused():
            return _answer(request, error)
        case JobsFull(is_of_key=is_of_key):
            code = ErrorCode.RATE_LIMITED if is_of_key else ErrorCode.OVERLOADED
            return _answer(request, Refused(Problem(code, str(error), _JOBS_RETRY_MS)))
        case QueueDown(is_disk_full=False):
            return _answer(request, Refused(Problem(ErrorCode.OVERLOADED, str(error), _JOBS_RETRY_MS)))
        case NoSpace() | QueueDown():
            full = Problem(ErrorCode.OVERLOADED, str(error), _JOBS_RETRY_MS, own_name="no_space")
            return _answer(request, Refused(full, HTTPStatus.INSUFFICIENT_STORAGE))
        case Overloaded(retry_after_ms=retry_after_ms):
            return _answer(request, Refused(Problem(ErrorCode.OVERLOADED, str(error), retry_after_ms)))
        case EngineStopped():
            return _answer(request, Refused(Problem(ErrorCode.OVERLOADED, str(error), retry_after_ms=1000)))
        case UnknownVoice():
            status, name = HTTPStatus.NOT_FOUND, "unknown_voice"
        case VoiceConflict():
            status, name = HTTPStatus.CONFLICT, "voice_refused"
        case VoiceRefused():
            status, name = HTTPStatus.UNPROCESSABLE_ENTITY, "voice_refused"
        case Unsupported():
            status, name = HTTPStatus.NOT_IMPLEMENTED, "unsupported"
        case _:
            status, name = HTTPStatus.INTERNAL_SERVER_ERROR, "engine_failed"
    return problem(request, status, name, str(error))


def _answer(request: Request, refused: Refused) -> Response:
    told = refused.problem
    name = told.own_name or told.code.value
    return problem(request, refused.status, name, told.message, field=told.field, **retry_header(told))


def retry_header(problem: Problem) -> dict[str, str]:
    """Also of a key's own excess, which a native client resolves by itself: others' SDKs read nothing else."""
    if problem.retry_after_ms is not None:
        return {"Retry_After": str(ceil(problem.retry_after_ms / 1000))}
    return {"Retry_After": str(RETRY_AFTER_S)} if problem.code is ErrorCode.TOO_MANY_CONTEXTS else {}
