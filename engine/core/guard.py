"""The guard: all work for an utterance is done in it, so that one utterance's failure never touches another."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

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

    @contextmanager
    def __call__(self, utterance: Utterance) -> Iterator[None]:
        try:
            yield
        except Exception:
            log.exception("utterance_failed", utterance=utterance.utterance_id)
            self.fail(utterance)

    @contextmanager
    def change_of(self, utterance: Utterance) -> Iterator[None]:
        """A change after which it is looked at again before the next decision."""
        utterance.listing.report()
        with self(utterance):
            yield

    @contextmanager
    def all_of(self, clauses: Iterable[Clause]) -> Iterator[None]:
        """A step that several utterances share: whose fault it was is not known."""
        try:
            yield
        except Exception:
            log.exception("shared_step_failed")
            for utterance in self._roster.of({clause.listing.key for clause in clauses}):
                self.fail(utterance)

    def fail(self, utterance: Utterance, message: str = INTERNAL_FAILURE) -> None:
        if utterance in self._roster:  # else it went wrong while it was ended
            with self(utterance):
                self._fail(utterance, message)
