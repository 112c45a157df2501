"""The roster: utterances and their needs, as of the last look at each.

With hundreds of streams most have enough audio ahead or wait for text. So whatever changes an utterance puts its key
into `changed`, and the core has it looked at (`look`) before it asks here. A step costs what the few that have changed
cost: nothing here goes through all utterances at every step, which may be thousands at rest.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from voicegate.engine.core import constants
from voicegate.engine.core.clause import Clause
from voicegate.engine.core.guard import Guard
from voicegate.engine.core.look import Look, Needs, Waiting
from voicegate.engine.core.policy import Limits, Rank, Ranked, StreamView, urgency
from voicegate.engine.core.utterance import Utterance
from voicegate.engine.interface import UtteranceId


class Roster:
    def __init__(
        self, look: Look, limits: Limits, guarding: Callable[[Sequence[Utterance]], Guard], changed: set[int]
    ) -> None:
        """`changed`: keys of utterances that are to be looked at: each change of one adds its key."""
        self.utterances: dict[int, Utterance] = {}  # by key: the order of submission
        self.by_id: dict[UtteranceId, Utterance] = {}
        self._look = look
        self._guarding = guarding
        self.changed = changed
        self._limits_of_many = limits
        has_two = limits.light_guard_s != limits.guard_s  # else none has to be looked at again where they change
        self._limits_of_few = replace(limits, guard_s=limits.light_guard_s) if has_two else limits
        self.limits = self._limits_of_few  # to go by now
        self._are_many = False  # with work due
        self.is_room_short = False  # some were left waiting for it: what holds some is finished
        # By key, needs as of the last look; parts of them once more, to be found at once:
        self.needs: dict[int, Needs] = {}
        self.due: dict[int, Ranked] = {}
        self.background: dict[int, Ranked] = {}  # due, and no listener waits for it
        self.waiting: dict[int, Waiting] = {}
        self.again: dict[int, Clause] = {}
        self.stalled: dict[int, Utterance] = {}
        self.resting: dict[int, Utterance] = {}
        self.readers: dict[int, Utterance] = {}
        self._alarms_s: dict[int, float] = {}
        self._first_alarm_s = math.inf  # none comes earlier

    # --- the utterances ---------------------------------------------------------------------------------------

    def add(self, utterance: Utterance) -> None:
        self.utterances[utterance.key] = self.by_id[utterance.utterance_id] = utterance
        self.changed.add(utterance.key)

    def remove(self, utterance: Utterance) -> None:
        key = utterance.key
        del self.utterances[key], self.by_id[utterance.utterance_id]
        self.background.pop(key, None)
        for needs in (self.needs, self.due, self.waiting, self.again, self.stalled, self.resting, self.readers):
            needs.pop(key, None)
        self._alarms_s.pop(key, None)

    def __iter__(self) -> Iterator[Utterance]:
        """In the order of submission; some may go meanwhile."""
        return iter(list(self.utterances.values()))

    def owners(self, clauses: Iterable[Clause]) -> list[Utterance]:
        """Without those that have ended, though something of theirs could not be given back."""
        return [self.utterances[clause.key] for clause in clauses if clause.key in self.utterances]

    # --- looks ------------------------------------------------------------------------------------------------

    def look(self, now_s: float) -> None:
        """Looks at all that have changed, or whose alarm has come. What is known here is true for `now_s` then."""
        if self._first_alarm_s <= now_s:
            rung = [key for key, alarm_s in self._alarms_s.items() if alarm_s <= now_s]
            for key in rung:
                del self._alarms_s[key]
            self.changed.update(rung)
            self._first_alarm_s = min(self._alarms_s.values(), default=math.inf)
        while self.changed:
            key = self.changed.pop()
            if (utterance := self.utterances.get(key)) is not None:
                with self._guarding((utterance,)):
                    needs = self._look.at(utterance, now_s, self.limits, is_room_short=self.is_room_short)
                    self._note(key, utterance, needs)
                self.changed.discard(key)  # what a look makes of growing text it knows

    def _note(self, key: int, utterance: Utterance, needs: Needs) -> None:
        self.needs[key] = needs
        due = self.background if utterance.request.is_background else self.due
        due.pop(key, None)
        _put(due, key, needs.work)
        _put(self.waiting, key, needs.waiting)
        _put(self.again, key, needs.again)
        _put(self.stalled, key, utterance if needs.is_stalled else None)
        _put(self.resting, key, utterance if utterance.is_at_rest else None)
        _put(self.readers, key, utterance if needs.wants_reading else None)
        _put(self._alarms_s, key, needs.alarm_s if needs.alarm_s < math.inf else None)
        self._first_alarm_s = min(self._first_alarm_s, needs.alarm_s)

    def note_text(self, utterance: Utterance) -> None:
        """Some has come, or was read: it is read on before the next look."""
        if utterance.key in self.utterances:
            _put(self.readers, utterance.key, utterance if utterance.feed.wants_reading else None)

    def note_load(self) -> None:
        """How many have work due: others press where these become many, or few. Then all are to be looked at."""
        self._are_many = self.are_many()
        before, self.limits = self.limits, self._limits_of_many if self._are_many else self._limits_of_few
        if self.limits is not before:
            self._change_all()

    def note_room(self, *, num_voiceless: int = 0) -> None:
        """Room was given out: all that wait now wait for others to end, but for some that wait for their voice."""
        num_waiting = sum(not each.utterance.request.is_background for each in self.waiting.values())
        is_short = num_waiting > num_voiceless
        if is_short is not self.is_room_short:
            self.is_room_short = is_short
            self._change_all()  # those held back within a clause, and those that will be

    def _change_all(self) -> None:
        self.changed.update(self.utterances.keys() - self.resting.keys())

    # --- what they need ---------------------------------------------------------------------------------------

    def are_many(self, *, num_more: int = 0) -> bool:
        """Whether many have work due, with so many that have begun since the last look."""
        return len(self.due) + num_more >= (constants.FEW_DUE if self._are_many else constants.MANY_DUE)

    def next_readers(self, now_s: float, *, is_lacking: bool) -> list[Utterance]:
        """Utterances whose text is to be read on, the most urgent first.

        `is_lacking`: those that have nothing for the LLM to read, else the others. One that was read in vain more often
        comes later: text that has nothing to say may be endless. None is looked at for this: `note_text` has told of
        new text, and it is looked at when that was read.
        """
        readers = [each for each in self.readers.values() if each.feed.lacks_clause is is_lacking]
        if len(readers) > 1:  # seldom: words come one by one
            readers.sort(key=lambda each: (each.num_vain_bites, self.rank(each, now_s, begun_s=None)))
        return readers

    def rank(self, utterance: Utterance, now_s: float, *, begun_s: float | None) -> Rank:
        """Rank of a clause that was begun then; None: of one that was not."""
        view = StreamView(utterance.key, utterance.waiting_since_s, utterance.deadline_s, math.inf, begun_s=begun_s)
        return urgency(view, now_s, self.limits)[0]

    def next_alarm_s(self, now_s: float) -> float | None:
        """When to look again if nothing happens. None: only an event can help."""
        return now_s if self.readers or self.stalled else min(self._alarms_s.values(), default=None)


def _put(needs: dict[int, Any], key: int, need: object) -> None:
    if need is None:
        needs.pop(key, None)
    else:
        needs[key] = need
