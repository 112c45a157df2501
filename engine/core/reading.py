"""Text read on: whose, and for how long between two steps. What a bite of it is, the feed knows."""

from collections.abc import Callable

from voicegate.engine.core import constants
from voicegate.engine.core.roster import Roster
from voicegate.engine.core.utterance import Utterance


class Reading:
    def __init__(self, roster: Roster, clock: Callable[[], float], read_bite: Callable[[Utterance], None]) -> None:
        """After `read_bite` the utterance may have ended, and be off the roster."""
        self._roster = roster
        self._clock = clock
        self._read_bite = read_bite

    def read(self, now_s: float, *, is_lacking: bool) -> None:
        """Of those whose speech needs it soon, in turn and for a moment at most: the others' speech goes on.

        `is_lacking`: of those who have nothing that the LLM could read, else of the others.
        """
        spent_s = 0.0
        while readers := self._roster.readers(now_s, is_lacking=is_lacking):
            for utterance in readers:
                feed = utterance.feed
                for _ in range(constants.FIRST_BITES if is_lacking else 1):
                    begun_s = self._clock()
                    self._read_bite(utterance)
                    spent_s += self._clock() - begun_s
                    is_quick = not utterance.num_started_clauses and utterance.num_vain_bites < constants.FIRST_BITES
                    if spent_s > (constants.FIRST_READING_S if is_quick else constants.READING_S):
                        return
                    if utterance not in self._roster or not (feed.lacks_clause and feed.has_unread):
                        break
