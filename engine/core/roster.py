"""The roster: utterances and their needs, as of the last look at each.

With hundreds of streams most have enough audio ahead or wait for text. Whatever changes an utterance reports it
(`Listing`), and the core looks at it again before it asks here: a step costs what the few that have changed cost.
"""

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from voicegate.engine.core import constants
from voicegate.engine.core.clause import Clause, Listing
from voicegate.engine.core.policy import Due, Limits, Rank, StreamView, urgency
from voicegate.engine.core.utterance import Utterance
from voicegate.engine.interface import UtteranceId


class Waiting(NamedTuple):
    """The next clause of an utterance may begin as soon as there is room for it."""

    view: StreamView
    utterance: Utterance
    clause: Clause
    is_pressing: bool  # it goes before all who are not


class Needs(NamedTuple):
    """Needs of one utterance, as of a look at it."""

    work: tuple[StreamView, Rank] | None = None  # that the lanes may do for it now
    generating: Clause | None = None  # whose LLM pass can go on
    news_tokens: int = 0  # with so many tokens of that pass something is new
    waiting: Waiting | None = None  # for room
    again: Clause | None = None  # a paused pass, to be read again now
    is_stalled: bool = False  # its text has waited too long for more of it
    is_at_rest: bool = False  # it has nothing to say, and is expected to have nothing
    wants_reading: bool = False
    alarm_s: float = math.inf  # when some of this is different, if nothing happens before


_NOTHING = Needs()


class Roster:
    def __init__(self, limits: Limits) -> None:
        self._utterances: dict[int, Utterance] = {}  # by key: the order of submission
        self._by_id: dict[UtteranceId, Utterance] = {}
        self.num_listings = 0  # so far
        self._limits_of_many = limits
        has_two = limits.light_guard_s != limits.guard_s  # else nobody has to be looked at again where they change
        self._limits_of_few = replace(limits, guard_s=limits.light_guard_s) if has_two else limits
        self.limits = self._limits_of_few  # to go by now
        self.are_many = False  # who have work due
        self.is_room_short = False  # some were left waiting for it: what holds some is finished
        self._changed: set[int] = set()  # to be looked at
        # What those need who were looked at, by key; some of it once more, to be found at once:
        self._needs: dict[int, Needs] = {}
        self.due = Due()
        self._waiting: dict[int, Waiting] = {}
        self._again: dict[int, Clause] = {}
        self._stalled: set[int] = set()
        self._resting: set[int] = set()
        self._readers: set[int] = set()
        self._alarms = Alarms()

    # --- who there is -----------------------------------------------------------------------------------------

    def new_listing(self) -> Listing:
        key, self.num_listings = self.num_listings, self.num_listings + 1
        return Listing(key, self._changed)

    def add(self, utterance: Utterance) -> None:
        self._utterances[utterance.listing.key] = self._by_id[utterance.utterance_id] = utterance
        utterance.listing.report()

    def remove(self, utterance: Utterance) -> None:
        key = utterance.listing.key
        del self._utterances[key], self._by_id[utterance.utterance_id]
        self._keep(key, _NOTHING)
        self._needs.pop(key, None)

    def __iter__(self) -> Iterator[Utterance]:
        """In the order of submission; some may go meanwhile."""
        return iter(list(self._utterances.values()))

    def __contains__(self, utterance: Utterance) -> bool:
        return utterance.listing.key in self._utterances

    @property
    def num_live(self) -> int:
        return len(self._utterances)

    @property
    def num_placed(self) -> int:
        """Without those at rest."""
        return len(self._utterances) - len(self._resting)

    def named(self, utterance_id: UtteranceId) -> Utterance | None:
        return self._by_id.get(utterance_id)

    def owner(self, clause: Clause) -> Utterance | None:
        return self._utterances.get(clause.listing.key)

    def of(self, keys: Iterable[int]) -> list[Utterance]:
        """Those of them that are still there."""
        return [self._utterances[key] for key in keys if key in self._utterances]

    # --- looks ------------------------------------------------------------------------------------------------

    def changed(self, now_s: float) -> Iterator[Utterance]:
        """Whom to look at: who has reported a change, or whose alarm has come."""
        self._changed.update(self._alarms.ring(now_s))
        while self._changed:
            key = self._changed.pop()
            if key in self._utterances:
                yield self._utterances[key]
                self._changed.discard(key)  # what a look makes of growing text it knows

    def note(self, utterance: Utterance, needs: Needs) -> None:
        """A look found that."""
        self._needs[utterance.listing.key] = needs
        self._keep(utterance.listing.key, needs)

    def _keep(self, key: int, needs: Needs) -> None:
        if needs.work is not None:
            self.due.put(*needs.work)
        else:
            self.due.drop(key)
        _put(self._waiting, key, needs.waiting)
        _put(self._again, key, needs.again)
        _mark(self._stalled, key, needs.is_stalled)
        _mark(self._resting, key, needs.is_at_rest)
        _mark(self._readers, key, needs.wants_reading)
        self._alarms.set(key, needs.alarm_s)

    def note_text(self, utterance: Utterance) -> None:
        """Some has come, or was read: it is read on before the next look."""
        if utterance in self:
            _mark(self._readers, utterance.listing.key, utterance.feed.wants_reading)

    def note_load(self) -> None:
        """How many have work due: others press where these become many, or few. Then all are to be looked at."""
        self.are_many = len(self.due) >= self._least_many
        before, self.limits = self.limits, self._limits_of_many if self.are_many else self._limits_of_few
        if self.limits is not before:
            self._report_all()

    def note_room(self, *, num_voiceless: int = 0) -> None:
        """Room was given out: whoever waits now waits for others to end, but for some who wait for their voice."""
        is_short = len(self._waiting) > num_voiceless
        if is_short is not self.is_room_short:
            self.is_room_short = is_short
            self._report_all()  # who was held back within a clause, and who will be

    def _report_all(self) -> None:
        self._changed.update(self._utterances.keys() - self._resting)

    # --- who needs what ---------------------------------------------------------------------------------------

    def would_be_many(self, *, num_more: int) -> bool:
        """Whether many have work due, with so many who have begun since the last look."""
        return len(self.due) + num_more >= self._least_many

    @property
    def _least_many(self) -> int:
        return constants.FEW_DUE if self.are_many else constants.MANY_DUE

    def passes(self, keys: Iterable[int]) -> list[Clause]:
        """Clauses among these whose LLM pass goes on.

        Nothing reports that no further step can be launched behind those in flight: that would have all be looked at
        twice a step. Who launches sees.
        """
        passes = []
        for key in keys:
            clause = self._needs.get(key, _NOTHING).generating
            if clause is not None:
                passes.append(clause)
            else:
                self._changed.add(key)
        return passes

    def is_news(self, clause: Clause) -> bool:
        """Whether something is new by the tokens it has. They come to many utterances a step."""
        return clause.num_tokens >= self._needs.get(clause.listing.key, _NOTHING).news_tokens

    def waiting(self, now_s: float, *, only_pressing: bool) -> list[Waiting]:
        """Whose next clause waits for room, the most urgent first."""
        waiting = [each for each in self._waiting.values() if each.is_pressing or not only_pressing]
        return sorted(waiting, key=lambda each: urgency(each.view, now_s, self.limits))

    def is_waiting(self, clause: Clause) -> bool:
        """For room."""
        waiting = self._waiting.get(clause.listing.key)
        return waiting is not None and waiting.clause is clause

    @property
    def num_waiting(self) -> int:
        """For room."""
        return len(self._waiting)

    @property
    def num_unread(self) -> int:
        """New requests with text of which nothing is known yet: they may come to wait, too."""
        unread = self.of(self._readers - self._waiting.keys())
        return len([utterance for utterance in unread if not utterance.num_started_clauses])

    @property
    def stalled(self) -> list[Utterance]:
        """Whose text has waited too long for more of it."""
        return self.of(self._stalled)

    @property
    def readings(self) -> list[tuple[Utterance, Clause]]:
        """Passes of growing text that are to be read again now."""
        return [(self._utterances[key], clause) for key, clause in self._again.items()]

    @property
    def has_readers(self) -> bool:
        return bool(self._readers)

    def readers(self, now_s: float, *, is_lacking: bool) -> list[Utterance]:
        """Whose text is to be read on, the most urgent first: who has nothing that the LLM could read, or the others.

        But behind the others whoever has been read in vain more often: text that has nothing to say may be endless.
        Nobody is looked at for it: who was given text has told (`note_text`), and is looked at when that was read.
        """
        if not self._readers:
            return []
        readers = [each for each in self.of(self._readers) if each.feed.lacks_clause is is_lacking]
        if len(readers) < 2:  # most often: words come one by one
            return readers
        return sorted(readers, key=lambda each: (each.num_vain_bites, self.rank(each, now_s, begun_s=None)))

    def rank(self, utterance: Utterance, now_s: float, *, begun_s: float | None) -> Rank:
        """Rank of a clause that was begun then; None: of one that was not."""
        key, deadline_s = utterance.listing.key, utterance.deadline_s
        view = StreamView(key, utterance.waiting_since_s, deadline_s, math.inf, begun_s=begun_s)
        return urgency(view, now_s, self.limits)

    def next_alarm_s(self, now_s: float) -> float | None:
        """When to look again if nothing happens. None: only an event can help."""
        return now_s if self._readers or self._stalled else self._alarms.next_s


class Alarms:
    """When to look at whom again, if nothing happens before: a moment a key at most."""

    def __init__(self) -> None:
        self._moments_s: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []  # what `_moments_s` does not confirm is out of date

    def set(self, key: int, moment_s: float) -> None:
        """In place of the one before; infinite: none."""
        if self._moments_s.get(key, math.inf) == moment_s:
            return
        self._moments_s.pop(key, None)
        if moment_s < math.inf:
            self._moments_s[key] = moment_s
            heapq.heappush(self._heap, (moment_s, key))

    @property
    def next_s(self) -> float | None:
        while self._heap and self._moments_s.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def ring(self, now_s: float) -> list[int]:
        """The keys whose moment has come; they have none any more."""
        rung = []
        while (next_s := self.next_s) is not None and next_s <= now_s:
            _, key = heapq.heappop(self._heap)
            del self._moments_s[key]
            rung.append(key)
        return rung


def _put(needs: dict[int, Any], key: int, need: object) -> None:
    if need is None:
        needs.pop(key, None)
    else:
        needs[key] = need


def _mark(keys: set[int], key: int, is_one: bool) -> None:
    if is_one:
        keys.add(key)
    else:
        keys.discard(key)
