"""The way into the engine: at once where there is room, after a short wait where there will be, or not at all."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from voicegate.engine.interface import (
    Engine,
    EngineError,
    Overloaded,
    UtteranceId,
    UtteranceRequest,
    VoiceOverloaded,
)
from voicegate.gateway.server.alarm import Alarm
from voicegate.gateway.session.waiting import WaitingLimits, WaitingLine

# The engine says nothing when it has room again, but that an utterance has ended; there is room at other times too.
# Lower asks more often, higher makes those who wait do so for longer.
_ASK_AGAIN_S: Final = 0.05
# A hanging engine goes on soon or never.
_TROUBLE_RETRY_MS: Final = 2_000

Answer = Callable[[EngineError | None], None]


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: UtteranceRequest
    answer: Answer
    is_return: bool


class Admission:
    def __init__(self, engine: Engine, limits: WaitingLimits) -> None:
        self._engine = engine
        self._line = WaitingLine(limits)
        self._waiting: dict[UtteranceId, _Waiting] = {}
        # For which there was no room when it was last asked for, while there was some for others.
        self._short_voices: set[str] = set()
        self._asking = Alarm()
        self.trouble: str | None = None  # for which everybody is refused, as long as it is there

    @property
    def num_waiting(self) -> int:
        return len(self._line)

    @property
    def max_waiting(self) -> int:
        """0: no one waits."""
        return self._line.limits.num_waiting if self._line.limits.wait_s else 0

    @property
    def retry_after_ms(self) -> int:
        return self._line.retry_after_ms(_now_s())

    @property
    def is_in_vain(self) -> bool:
        """Others have waited for room, and no one has got any for longer than anybody waits."""
        return self._line.is_in_vain(_now_s())

    def submit(self, request: UtteranceRequest, answer: Answer, *, is_return: bool = False) -> None:
        """`answer` is called with None once the engine has it, at once or later; or with why not.

        `is_return`: the engine has it at rest. It needs a place alone: new requests that wait do not hold it up.
        """
        if self.trouble is not None:
            answer(Overloaded(f"{self.trouble}; try another server", retry_after_ms=_TROUBLE_RETRY_MS))
            return
        waiting = _Waiting(request, answer, is_return)
        if is_return or self._waits_for_nobody(request.voice):
            error = self._try(waiting)
            if not isinstance(error, Overloaded) or self._line.is_full:
                answer(self._honest(error))
                return
        elif self._line.is_full:
            text = f"{len(self._line)} others wait for room already; try again later"
            answer(self._honest(Overloaded(text, retry_after_ms=0)))
            return
        self._line.join(request.utterance_id, _now_s())
        self._waiting[request.utterance_id] = waiting
        self._ask_later()

    def withdraw(self, utterance_id: UtteranceId) -> None:
        """No one waits for the answer any more."""
        self._line.leave(utterance_id)
        self._waiting.pop(utterance_id, None)

    def note_end(self) -> None:
        """An utterance of the engine's has ended, or rests."""
        self._line.note_end(_now_s())
        self._ask()

    def _try(self, waiting: _Waiting) -> EngineError | None:
        try:
            if waiting.is_return:
                self._engine.readmit(waiting.request.utterance_id)
            else:
                self._engine.submit(waiting.request)
        except VoiceOverloaded as error:
            self._short_voices.add(waiting.request.voice)
            return error
        except EngineError as error:
            return error
        self._line.note_admission(_now_s())
        return None

    def _waits_for_nobody(self, voice: str) -> bool:
        """Whether all who came before wait for room that is of no use to this one."""
        new_requests = [waiting.request.voice for waiting in self._waiting.values() if not waiting.is_return]
        return not new_requests if voice in self._short_voices else self._short_voices.issuperset(new_requests)

    def _ask(self) -> None:
        """For those who wait, in turn, until there is no room; then send away those whose time is over.

        Where there is some, but not for a voice or for new requests, the others are asked for.
        """
        self._short_voices.clear()
        takes_new = True
        for utterance_id in self._line:
            waiting = self._waiting.get(utterance_id)  # an answer may end others' waiting
            if waiting is None:
                continue
            if not waiting.is_return and not (takes_new and waiting.request.voice not in self._short_voices):
                continue
            error = self._try(waiting)
            if isinstance(error, Overloaded):
                takes_new &= waiting.is_return or isinstance(error, VoiceOverloaded)
                continue
            self.withdraw(utterance_id)
            waiting.answer(error)
        for utterance_id in self._line.take_expired(_now_s()):
            text = f"no room within {self._line.limits.wait_s:g} s; try again later"
            if (late := self._waiting.pop(utterance_id, None)) is not None:  # an answer may end others' sockets too
                late.answer(self._honest(Overloaded(text, retry_after_ms=0)))
        self._ask_later()

    def _ask_later(self) -> None:
        deadline_s = self._line.next_deadline_s
        if deadline_s is None:
            self._asking.call_off()
            return
        wait_s = min(deadline_s - _now_s(), _ASK_AGAIN_S)
        self._asking.set(asyncio.get_running_loop().time() + wait_s, self._ask)

    def _honest(self, error: EngineError | None) -> EngineError | None:
        """With what the gateway knows of when there is room again."""
        if not isinstance(error, Overloaded):
            return error
        now_s = _now_s()
        self._line.note_refusal(now_s)
        return Overloaded(str(error), retry_after_ms=self._line.retry_after_ms(now_s, error.retry_after_ms))


def _now_s() -> float:
    """Not the loop's: metrics are read from another thread."""
    return time.monotonic()
