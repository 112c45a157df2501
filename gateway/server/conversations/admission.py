"""The way into the engine: at once where there is room, after a short wait where there will be, or not at all."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from voicegate.engine.interface import Engine, EngineError, Overloaded, UtteranceId, UtteranceRequest
from voicegate.gateway.server.alarm import Alarm
from voicegate.gateway.session.waiting import WaitingLimits, WaitingLine

# The engine says nothing when it has room again, but that an utterance has ended; there is room at other times too.
# Lower asks more often, higher makes those who wait do so for longer.
_ASK_AGAIN_S: Final = 0.05
# What hangs goes on soon or never.
_TROUBLE_RETRY_MS: Final = 2_000

Answer = Callable[[EngineError | None], None]


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: UtteranceRequest
    answer: Answer


class Admission:
    def __init__(self, engine: Engine, limits: WaitingLimits) -> None:
        self._engine = engine
        self._line = WaitingLine(limits)
        self._waiting: dict[UtteranceId, _Waiting] = {}
        self._asking = Alarm()
        self.trouble: str | None = None  # for which everybody is refused, as long as it is there

    @property
    def num_waiting(self) -> int:
        return len(self._line)

    @property
    def max_waiting(self) -> int:
        """0: nobody waits."""
        return self._line.limits.num_waiting if self._line.limits.wait_s else 0

    @property
    def retry_after_ms(self) -> int:
        return self._line.retry_after_ms()

    def submit(self, request: UtteranceRequest, answer: Answer) -> None:
        """`answer` is called with None once the engine has it, at once or later; or with why not."""
        if self.trouble is not None:
            answer(Overloaded(f"{self.trouble}; try another server", retry_after_ms=_TROUBLE_RETRY_MS))
            return
        if self._line.first is None:
            error = self._try(request)
            if not isinstance(error, Overloaded) or self._line.is_full:
                answer(self._honest(error))
                return
        elif self._line.is_full:
            text = f"{len(self._line)} others wait for room already; try again later"
            answer(Overloaded(text, retry_after_ms=self._line.retry_after_ms()))
            return
        self._line.join(request.utterance_id, _now_s())
        self._waiting[request.utterance_id] = _Waiting(request, answer)
        self._ask_later()

    def withdraw(self, utterance_id: UtteranceId) -> None:
        """Nobody waits for the answer any more."""
        self._line.leave(utterance_id)
        self._waiting.pop(utterance_id, None)

    def note_end(self) -> None:
        """An utterance of the engine's has ended."""
        self._line.note_end(_now_s())
        self._ask()

    def _try(self, request: UtteranceRequest) -> EngineError | None:
        try:
            self._engine.submit(request)
        except EngineError as error:
            return error
        return None

    def _ask(self) -> None:
        """For those who wait, in turn, until there is no room; then send away those whose time is over."""
        while (first := self._line.first) is not None:
            waiting = self._waiting[first]
            error = self._try(waiting.request)
            if isinstance(error, Overloaded):
                break
            self.withdraw(first)
            waiting.answer(error)
        for utterance_id in self._line.take_expired(_now_s()):
            text = f"no room within {self._line.limits.wait_s:g} s; try again later"
            error = Overloaded(text, retry_after_ms=self._line.retry_after_ms())
            if (late := self._waiting.pop(utterance_id, None)) is not None:  # an answer may end others' sockets too
                late.answer(error)
        self._ask_later()

    def _ask_later(self) -> None:
        deadline_s = self._line.next_deadline_s
        at_s = None if deadline_s is None else min(deadline_s, _now_s() + _ASK_AGAIN_S)
        self._asking.set(at_s, self._ask)

    def _honest(self, error: EngineError | None) -> EngineError | None:
        """With what the gateway knows of when there is room again."""
        if not isinstance(error, Overloaded):
            return error
        return Overloaded(str(error), retry_after_ms=self._line.retry_after_ms(error.retry_after_ms))


def _now_s() -> float:
    return asyncio.get_running_loop().time()
