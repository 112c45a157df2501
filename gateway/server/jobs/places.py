"""Places of an engine, and how many of them parts of jobs may take beside live streams. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Share of the clauses that an engine holds, with which it makes as much audio as it can. Higher -> first audio of live
# streams is later; lower -> jobs alone leave some of a GPU unused.
_FULL_SHARE: Final = 1 / 7
# A part's next clause begins before its last one has ended.
_CLAUSES_OF_A_PART: Final = 1.25
# Clauses that a live stream holds at most. Higher -> parts make way for each other, where these hold more than usual or
# a process tells its places late; lower -> for fewer clauses than live streams hold.
_MOST_OF_A_STREAM: Final = 2
# Parts that make way for each clause of a live stream. Higher -> first audio is sooner; lower -> jobs get on faster.
_FOR_A_LIVE_CLAUSE: Final = 4
# The share of what live streams took that counts at the next look, a tenth of a second later. Higher -> parts begin
# later after live streams have gone; lower -> more parts are begun between two live streams, and stopped.
_FADING: Final = 0.98
# Share of those that parts take beside any number of live streams. Higher -> first audio is later.
_LEAST_SHARE: Final = 1 / 16


@dataclass(frozen=True, slots=True)
class Places:
    """An utterance that finds none waits inside the engine until another's clause ends, which may take seconds."""

    num_free: int  # below 0: so many clauses wait already
    num_all: int
    num_full: int  # with more taken, no more audio is made, and first audio is later


@dataclass(slots=True)
class Share:
    """How many parts may run, by looks ten times a second."""

    _num_live: float = 0.0  # clauses of live streams: the most of the last seconds

    def look(self, places: Places, num_parts: int, num_streams: int) -> None:
        """`num_streams`: live ones that have something to say."""
        num_live = places.num_all - places.num_free - round(_CLAUSES_OF_A_PART * num_parts)
        self._num_live = max(min(num_live, _MOST_OF_A_STREAM * num_streams), self._num_live * _FADING)

    def most(self, places: Places) -> int:
        """So many parts may run."""
        num_left = int(places.num_full - _FOR_A_LIVE_CLAUSE * self._num_live)
        return max(num_left, round(places.num_full * _LEAST_SHARE), 1)

    def num_excess(self, places: Places, num_parts: int) -> int:
        """So many are to be stopped. Twice as many as may begin go on: what is stopped was made in vain."""
        return max(num_parts - 2 * self.most(places), 0)


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
