"""Places of an engine, of which parts of jobs take what live streams leave."""

from dataclasses import dataclass
from typing import Final

from voicegate.engine.interface import Engine

# An utterance's next clause begins before its last one has ended.
_CLAUSES_AT_ONCE: Final = 2


@dataclass(frozen=True, slots=True)
class Places:
    """An utterance that finds none waits inside the engine until another's clause ends, which may take seconds."""

    num_free: int  # below 0: so many clauses wait already
    num_all: int
    most_of_one: int  # that one utterance takes


def places_of(engine: Engine) -> Places:
    """Clauses are what an engine makes side by side; one that does not tell of them has a place for each utterance.

    `engine.room` has the places of those who would wait, too.
    """
    gauges, most_utterances = engine.stats().gauges, engine.info.max_utterances
    if "max_active_clauses" not in gauges:
        return Places(engine.room, most_utterances, 1)
    most_clauses = int(gauges["max_active_clauses"])
    num_taken = int(gauges["active_clauses"] + gauges["waiting_clauses"])
    num_all = min(most_clauses, most_utterances)
    return Places(min(engine.room, most_clauses - num_taken), num_all, min(_CLAUSES_AT_ONCE, num_all))
