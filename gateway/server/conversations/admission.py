"""The way into the engine: at once where there is room, after a short wait where there will be, or not at all."""

import asyncio
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
        # For which there was no room when it was last asked for, while there was some for others.
        self._short_voices: set[str] = set()
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
        if self._waits_for_nobody(request.voice):
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
        except VoiceOverloaded as error:
            self._short_voices.add(request.voice)
            return error
        except EngineError as error:
            return error
        return None

    def _waits_for_nobody(self, voice: str) -> bool:
        """Whether all who came before wait for room that is of no use to this one."""
        if voice in self._short_voices:
            return not self._waiting
        return all(waiting.request.voice in self._short_voices for waiting in self._waiting.values())

    def _ask(self) -> None:
        """For those who wait, in turn, until there is no room; then send away those whose time is over.

        Where there is some, but not for a voice, those who wait for others are asked for.
        """
        self._short_voices.clear()
        for utterance_id in self._line:
            waiting = self._waiting.get(utterance_id)  # an answer may end others' waiting
            if waiting is None or waiting.request.voice in self._short_voices:
                continue
            error = self._try(waiting.request)
            if isinstance(error, VoiceOverloaded):
                continue
            if isinstance(error, Overloaded):
                break
            self.withdraw(utterance_id)
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
