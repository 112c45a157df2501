"""The guard: all work for an utterance is done in it, so that one utterance's failure never touches another."""

from collections.abc import Callable, Iterable
from types import TracebackType

import structlog

from voicegate.engine.core.clause import Clause
from voicegate.engine.core.roster import Roster
from voicegate.engine.core.utterance import Utterance
from voicegate.engine.interface import INTERNAL_FAILURE

log = structlog.get_logger()


class Guard:
    """`with guarding(utterance):` what goes wrong behind it ends that utterance, and nothing else."""

    def __init__(self, roster: Roster, fail: Callable[[Utterance, str], None]) -> None:
        """`fail` ends an utterance, with a message for its client."""
        self._roster = roster
        self._fail = fail

    def __call__(self, utterance: Utterance) -> "_OneGuarded":
        return _OneGuarded(self, utterance)

    def change_of(self, utterance: Utterance) -> "_OneGuarded":
        """A change after which it is looked at again before the next decision."""
        utterance.listing.report()
        return _OneGuarded(self, utterance)

    def all_of(self, clauses: Iterable[Clause]) -> "_AllGuarded":
        """A step that several utterances share: whose fault it was is not known."""
        return _AllGuarded(self, clauses)

    def fail_all_of(self, clauses: Iterable[Clause]) -> None:
        for utterance in self._roster.of({clause.listing.key for clause in clauses}):
            self.fail(utterance)

    def fail(self, utterance: Utterance, message: str = INTERNAL_FAILURE) -> None:
        if utterance in self._roster:  # else it went wrong while it was ended
            with self(utterance):
                self._fail(utterance, message)


class _OneGuarded:
    """A class, not a generator: thousands are entered a second, on the thread that a GPU waits for."""

    __slots__ = ("_guard", "_utterance")

    def __init__(self, guard: Guard, utterance: Utterance) -> None:
        self._guard = guard
        self._utterance = utterance

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        log.error("utterance_failed", utterance=self._utterance.utterance_id, exc_info=error)
        self._guard.fail(self._utterance)
        return True


class _AllGuarded:
    __slots__ = ("_clauses", "_guard")

    def __init__(self, guard: Guard, clauses: Iterable[Clause]) -> None:
        self._guard = guard
        self._clauses = clauses

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        log.error("shared_step_failed", exc_info=error)
        self._guard.fail_all_of(self._clauses)
        return True
