"""Places of an engine, and how many of them parts of jobs may take. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Share of the clauses that an engine holds, with which it makes as much audio as it can. Higher -> parts hold places
# and gain nothing; lower -> jobs alone leave some of a GPU unused.
_FULL_SHARE: Final = 1 / 7
# Share of the places that parts leave to live streams, which come in bursts. Half of it is the least that is free while
# parts go on. Higher -> jobs wait at lighter loads; lower -> live streams wait for parts to be stopped.
_RESERVE: Final = 1 / 4


@dataclass(frozen=True, slots=True)
class Places:
    """An utterance that finds none waits inside the engine until another's clause ends, which may take seconds."""

    num_free: int  # below 0: so many clauses wait already
    num_all: int
    num_full: int  # parts at most: with more, no more audio is made

    @property
    def num_short(self) -> int:
        """So many places live streams lack."""
        return max((self._num_reserved + 1) // 2 - self.num_free, 0)

    def num_more(self, num_parts: int, num_on_their_way: int = 0) -> int:
        """So many parts may begin. `num_on_their_way`: parts whose place is not counted as taken yet."""
        num_free = self.num_free - num_on_their_way - self._num_reserved
        return max(min(num_free, self.num_full - num_parts), 0)

    @property
    def _num_reserved(self) -> int:
        return int(self.num_all * _RESERVE)


def places_of(room: int, most_utterances: int, gauges: Mapping[str, float]) -> Places:
    """Clauses are what an engine makes side by side; one that does not tell of them has a place for each utterance.

    An engine's `room` has the places of those who would wait, too.
    """
    if "max_active_clauses" not in gauges:
        return Places(room, most_utterances, most_utterances)
    most_clauses = int(gauges["max_active_clauses"])
    num_taken = int(gauges["active_clauses"] + gauges["waiting_clauses"])
    num_free, num_all = min(room, most_clauses - num_taken), min(most_clauses, most_utterances)
    return Places(num_free, num_all, max(round(most_clauses * _FULL_SHARE), 1))
