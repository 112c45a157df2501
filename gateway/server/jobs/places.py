"""Places of an engine, and how many of them parts of jobs may take beside live streams. Pure, but for the engine."""

from dataclasses import dataclass
from typing import Final

from voicegate.engine.interface import Engine

# Share of the clauses that an engine holds, with which it makes as much audio as it can. Higher -> first audio of live
# streams is later; lower -> jobs alone leave some of a GPU unused.
_FULL_SHARE: Final = 1 / 7
# A part's next clause begins before its last one has ended.
_CLAUSES_OF_A_PART: Final = 1.25
# Parts that make way for each clause of a live stream. Higher -> first audio is sooner; lower -> jobs get on faster.
_FOR_A_LIVE_CLAUSE: Final = 4
# Share of those that parts take beside any number of live streams. Higher -> first audio is later.
_LEAST_SHARE: Final = 1 / 16


@dataclass(frozen=True, slots=True)
class Places:
    """An utterance that finds none waits inside the engine until another's clause ends, which may take seconds."""

    num_free: int  # below 0: so many clauses wait already
    num_all: int
    num_full: int  # with more taken, no more audio is made, and first audio is later

    def num_live(self, num_parts: int) -> int:
        """Clauses of live streams, beside so many parts; about."""
        return max(self.num_all - self.num_free - round(_CLAUSES_OF_A_PART * num_parts), 0)

    def num_for_parts(self, num_live: float) -> int:
        """So many parts may run beside so many clauses of live streams."""
        num_left = int(self.num_full - _FOR_A_LIVE_CLAUSE * num_live)
        return max(num_left, round(self.num_full * _LEAST_SHARE), 1)


def places_of(engine: Engine) -> Places:
    """Clauses are what an engine makes side by side; one that does not tell of them has a place for each utterance.

    `engine.room` has the places of those who would wait, too.
    """
    gauges, most_utterances = engine.stats().gauges, engine.info.max_utterances
    if "max_active_clauses" not in gauges:
        return Places(engine.room, most_utterances, most_utterances)
    most_clauses = int(gauges["max_active_clauses"])
    num_taken = int(gauges["active_clauses"] + gauges["waiting_clauses"])
    num_free, num_all = min(engine.room, most_clauses - num_taken), min(most_clauses, most_utterances)
    return Places(num_free, num_all, max(round(most_clauses * _FULL_SHARE), 1))
