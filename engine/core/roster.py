"""Who there is, and who needs what: what could be done for each utterance now, or when it will be due.

With hundreds of streams most have enough audio ahead or wait for text. Whatever changes an utterance reports it
(`Listing`), and it is looked at again before the next answer: a step costs what the few that have changed cost.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeVar, TypeVarTuple

from voicegate.engine.config import EngineConfig
from voicegate.engine.core import constants
from voicegate.engine.core.clause import Clause, ClauseState, Listing
from voicegate.engine.core.pipeline import Pipeline
from voicegate.engine.core.policy import (
    Due,
    Limits,
    Rank,
    StreamView,
    due_at_s,
    pressing_at_s,
    urgency,
    urgency_changes_at_s,
)
from voicegate.engine.core.readings import Readings
from voicegate.engine.core.utterance import Utterance
from voicegate.engine.interface import UtteranceId

_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")


class Attempt(Protocol):
    """Does a piece of work for one utterance; None if that failed, and then it has ended and is off the roster."""

    def __call__(self, utterance: Utterance, work: Callable[[*_Args], _Result], *args: *_Args) -> _Result | None: ...


class Waiting(NamedTuple):
    """The next clause of an utterance may begin as soon as there is room for it."""

    view: StreamView
    utterance: Utterance
    clause: Clause


class Roster:
    def __init__(
        self, config: EngineConfig, limits: Limits, pipeline: Pipeline, readings: Readings, attempt: Attempt
    ) -> None:
        self._config = config
        self._limits_of_many = limits
        has_two = limits.light_guard_s != limits.guard_s  # else nobody has to be looked at again where they change
        self._limits_of_few = replace(limits, guard_s=limits.light_guard_s) if has_two else limits
        self._limits = self._limits_of_few  # to go by now
        self._are_many = False  # who have work due
        self._pipeline = pipeline
        self._readings = readings
        self._attempt = attempt
        self._utterances: dict[int, Utterance] = {}  # by key: the order of submission
        self._by_id: dict[UtteranceId, Utterance] = {}
        self.num_listings = 0  # so far
        self._stall_s = config.stall_ms / 1000 or math.inf
        self._stall_lead_s = config.stall_lead_ms / 1000
        self.is_room_short = False  # some were left waiting for it
        self._is_room_tight = False  # some may have to soon: what holds some is finished
        self._changed: set[int] = set()  # to be looked at
        # What those need who were looked at, by key:
        self._due = Due()
        self._waiting: dict[int, Waiting] = {}
        self._pressing: set[int] = set()  # of those who wait
        self._readers: set[int] = set()
        self._gathering: set[int] = set()  # whose text may lie unread while more of it comes
        self._stalled: set[int] = set()
        self._resting: set[int] = set()  # who have nothing to say, and are expected to have none
        self._again: dict[int, Clause] = {}  # paused passes that are to be read again
        self._generating: dict[int, Clause] = {}  # whose LLM passes go on
        self._news_tokens: dict[int, int] = {}  # with so many of that pass something is new; none: with any
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
        self._due.drop(key)
        for needs in (self._waiting, self._again, self._generating, self._news_tokens):
            needs.pop(key, None)
        for keys in (self._pressing, self._readers, self._gathering, self._stalled, self._resting):
            keys.discard(key)
        self._alarms.set(key, math.inf)

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
        """Without those at rest, as of the last look."""
        return len(self._utterances) - len(self._resting)

    def named(self, utterance_id: UtteranceId) -> Utterance | None:
        return self._by_id.get(utterance_id)

    def owner(self, clause: Clause) -> Utterance | None:
        return self._utterances.get(clause.utterance_key)

    def of(self, keys: Iterable[int]) -> list[Utterance]:
        """Those of them that are still there."""
        return [self._utterances[key] for key in keys if key in self._utterances]

    # --- who needs what ---------------------------------------------------------------------------------------

    def due(self, now_s: float) -> Due:
        """Work that may be done now. Whether an LLM step is among it may be out of date: see `passes`."""
        self._refresh(now_s)
        self._are_many = len(self._due) >= self._least_many
        before, self._limits = self._limits, self._limits_of_many if self._are_many else self._limits_of_few
        if self._limits is not before:
            self._changed.update(self._utterances.keys() - self._resting)  # who presses by other limits
            self._refresh(now_s)
        return self._due

    def would_be_many(self, *, num_more: int) -> bool:
        """Whether many have work due, with so many who have begun since the last look."""
        return len(self._due) + num_more >= self._least_many

    @property
    def _least_many(self) -> int:
        return constants.FEW_DUE if self._are_many else constants.MANY_DUE

    def passes(self, keys: Iterable[int]) -> list[Clause]:
        """Of these, the clauses whose LLM pass goes on, as of the last look.

        Nothing reports that no further step can be launched behind those in flight: that would have all be looked at
        twice a step. Who launches sees.
        """
        generating = self._generating
        self._changed.update([key for key in keys if key not in generating])
        return [generating[key] for key in keys if key in generating]

    def note_tokens(self, clause: Clause) -> None:
        """It has some more: most often nothing is new by that. They come to many utterances a step."""
        key = clause.listing.key
        if len(clause.tokens) >= self._news_tokens.get(key, 0) or not self._pipeline.can_generate(clause):
            self._changed.add(key)

    def note_text(self, utterance: Utterance, now_s: float) -> None:
        """Some has come, or was read: it is read on before the next look, unless it may gather."""
        if utterance in self:
            is_due = self._gathers_until_s(utterance, now_s) <= now_s
            _note(self._readers, utterance.listing.key, is_due and utterance.feed.wants_reading)

    def is_gathering(self, utterance: Utterance) -> bool:
        """As of the last look: more text is news to nobody before its alarm."""
        return utterance.listing.key in self._gathering

    def waiting(self, now_s: float, *, only_pressing: bool) -> list[Waiting]:
        """Whose next clause waits for room, the most urgent first."""
        self._refresh(now_s)
        keys = self._pressing if only_pressing else self._waiting
        return sorted(map(self._waiting.__getitem__, keys), key=lambda each: urgency(each.view, now_s, self._limits))

    def is_waiting(self, clause: Clause) -> bool:
        """For room, as of the last look."""
        waiting = self._waiting.get(clause.utterance_key)
        return waiting is not None and waiting.clause is clause

    @property
    def num_waiting(self) -> int:
        """For room, as of the last look."""
        return len(self._waiting)

    @property
    def num_unread(self) -> int:
        """Newcomers with text of which nothing is known yet: they may come to wait, too."""
        return sum(utterance.num_started_clauses == 0 for utterance in self.of(self._readers - self._waiting.keys()))

    def stalled(self, now_s: float) -> list[Utterance]:
        """Whose text has waited too long for more of it."""
        self._refresh(now_s)
        return self.of(self._stalled)

    def readings(self, now_s: float) -> list[tuple[Utterance, Clause]]:
        """Passes of growing text that are to be read again now."""
        self._refresh(now_s)
        return [(self._utterances[key], clause) for key, clause in self._again.items()]

    @property
    def has_readers(self) -> bool:
        """As of the last look."""
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

        def turn(utterance: Utterance) -> tuple[int, Rank]:
            return utterance.num_vain_bites, urgency(self._view(utterance, begun_s=None), now_s, self._limits)

        return sorted(readers, key=turn)

    def next_alarm_s(self, now_s: float) -> float | None:
        """When to look again if nothing happens. None: only an event can help."""
        self._refresh(now_s)
        return now_s if self._readers or self._stalled else self._alarms.next_s

    def holders(self, now_s: float) -> list[Utterance]:
        """Who holds memory of the flow, the most urgent first; behind them who has it and waits for text."""
        self._refresh(now_s)

        def turn(utterance: Utterance) -> tuple[bool, Rank]:
            view = self._view(utterance, begun_s=utterance.clauses[0].begun_s)
            return utterance.listing.key not in self._due, urgency(view, now_s, self._limits)

        holding = [each for each in self if each.clauses and self._pipeline.num_held_blocks(each.clauses[0])]
        return sorted(holding, key=turn)

    def note_room(self, now_s: float, *, num_voiceless: int = 0) -> None:
        """Room was given out: whoever waits now waits for others to end, but for some who wait for their voice."""
        self._refresh(now_s)
        self.is_room_short = len(self._waiting) > num_voiceless
        least_share = constants.EASED_SHARE if self._is_room_tight else constants.TIGHT_SHARE
        is_tight = self.is_room_short or self._pipeline.free_share < least_share
        if is_tight is not self._is_room_tight:
            self._is_room_tight = is_tight
            # Who was held back within a clause, and who will be.
            self._changed.update(self._utterances.keys() - self._resting)

    # --- looking ----------------------------------------------------------------------------------------------

    def _refresh(self, now_s: float) -> None:
        self._changed.update(self._alarms.ring(now_s))
        while self._changed:
            utterance = self._utterances.get(self._changed.pop())
            if utterance is not None:
                self._attempt(utterance, self._look_at, utterance, now_s)
                self._changed.discard(utterance.listing.key)  # what `_look_at` makes of growing text it knows

    def _look_at(self, utterance: Utterance, now_s: float) -> None:
        """Ask all that there is to ask of it; what is not due yet sets its alarm."""
        key = utterance.listing.key
        passing = next((clause for clause in utterance.clauses if clause.llm_pass is not None), None)
        if passing is not None:
            self._pipeline.catch_up(passing)
        growing, reads_s = self._readings.next_reading(utterance, now_s)
        generating, roomless = self._next_clauses(utterance, growing if reads_s <= now_s else None)
        if generating is not None:
            self._generating[key] = generating
        else:
            self._generating.pop(key, None)
        if growing is not None and growing.is_paused and reads_s <= now_s:
            self._again[key] = growing
        else:
            self._again.pop(key, None)
        work_s = self._note_work(utterance, generating, now_s)
        if passing is not None:
            self._pipeline.tell_after(passing, max(self._news_tokens.get(key, 0) - passing.num_tokens, 1))
        room_s = self._note_waiting(utterance, roomless, now_s)
        stalls_s = utterance.stalls_at_s(self._stall_s, self._stall_lead_s)
        _note(self._stalled, key, stalls_s <= now_s)
        _note(self._resting, key, utterance.is_at_rest)
        gathers_s = self._gathers_until_s(utterance, now_s)
        _note(self._gathering, key, gathers_s > now_s)
        _note(self._readers, key, gathers_s <= now_s and utterance.feed.wants_reading)
        alarm_s = math.inf
        for moment_s in (work_s, room_s, stalls_s, reads_s, gathers_s):
            if now_s < moment_s < alarm_s:
                alarm_s = moment_s
        self._alarms.set(key, alarm_s)

    def _gathers_until_s(self, utterance: Utterance, now_s: float) -> float:
        """Only where there is much else to do: a sentence that is found to be whole is made ahead of its listener."""
        return self._readings.gathers_until_s(utterance, now_s) if self._are_many else -math.inf

    def _next_clauses(self, utterance: Utterance, growing: Clause | None) -> tuple[Clause | None, Clause | None]:
        """The clause whose LLM pass could go on now, and the one that needs room: to begin, or to sound again.

        There is one pass at a time, not too far ahead of the flow; but the tokens of a clause that was set aside are
        made at once, for its slot is free for others then. `growing`: though its text is not complete, it may begin.
        """
        num_ahead, roomless = 0, None
        for clause in utterance.clauses:
            state = clause.state
            if clause.is_silent:  # what is behind it can be said when it has gone
                continue
            if state is ClauseState.WAITING:
                is_known = clause.is_text_complete or clause is growing or utterance.feed.is_bistream
                if roomless is None and is_known and clause.text_ids and num_ahead < self._config.llm_ahead_tokens:
                    roomless = clause
                break
            if roomless is None and clause.is_set_aside:
                roomless = clause
            num_ahead += clause.num_ahead_tokens
            if state is ClauseState.GENERATING:
                is_wanted = num_ahead < self._config.llm_ahead_tokens or clause.is_set_aside
                return clause if is_wanted and self._pipeline.can_generate(clause) else None, roomless
        return None, roomless

    def _note_work(self, utterance: Utterance, generating: Clause | None, now_s: float) -> float:
        """Of its front clause, and of the LLM. Returns when that is due, or of another urgency."""
        key = utterance.listing.key
        self._news_tokens.pop(key, None)
        front = utterance.clauses[0] if utterance.clauses else None
        block_frames = 0 if front is None else self._pipeline.block_frames(front)
        if front is None or not (generating is not None or block_frames or front.batch is not None):
            self._due.drop(key)
            return math.inf
        view = StreamView(  # without names, which would take as long again
            key,
            utterance.waiting_since_s,
            utterance.deadline_s,
            self._max_lead_within_clause_s(utterance),
            generating is not None,  # wants_llm
            block_frames,
            self._pipeline.num_blocks(front),
            front.batch,
            front.begun_s,
            generating is not None and not generating.is_prefilled,  # needs_prefill
            front.awaits_samples,
        )
        due_s = due_at_s(view)
        if due_s > now_s:
            self._due.drop(key)
            return due_s
        self._due.put(view, urgency(view, now_s, self._limits))
        if generating is not None and not view.needs_prefill:
            self._news_tokens[key] = self._next_news_tokens(utterance, generating)
        return urgency_changes_at_s(view, now_s, self._limits)

    def _next_news_tokens(self, utterance: Utterance, generating: Clause) -> int:
        """With so many, the pass completes the block that its clause waits for, or is far enough ahead."""
        num_more = self._config.llm_ahead_tokens - sum([each.num_ahead_tokens for each in utterance.clauses])
        if generating is utterance.clauses[0]:
            num_missing = self._pipeline.num_missing_tokens(generating)
            num_more = min(num_more, num_missing) if num_missing else num_more
        return generating.num_tokens + num_more

    def _note_waiting(self, utterance: Utterance, clause: Clause | None, now_s: float) -> float:
        """For room for this clause, and whether that presses. Returns when the next of the two begins."""
        key = utterance.listing.key
        if clause is None:
            self._waiting.pop(key, None)
            self._pressing.discard(key)
            return math.inf
        view = self._view(utterance, begun_s=None)
        waits_s = due_at_s(view)
        presses_s = max(pressing_at_s(view, self._limits), waits_s)
        if waits_s <= now_s:
            self._waiting[key] = Waiting(view, utterance, clause)
        else:
            self._waiting.pop(key, None)
        _note(self._pressing, key, presses_s <= now_s)
        return waits_s if waits_s > now_s else presses_s

    def _view(self, utterance: Utterance, *, begun_s: float | None) -> StreamView:
        """What the scheduler's urgency goes by. None: of a clause that is not begun."""
        return StreamView(
            key=utterance.listing.key,
            waiting_since_s=utterance.waiting_since_s,
            deadline_s=utterance.deadline_s,
            max_lead_s=self._max_lead_s(utterance),
            begun_s=begun_s,
        )

    def _max_lead_within_clause_s(self, utterance: Utterance) -> float:
        """A clause holds flow memory for as long as it is active: where that is tight it is finished (ADR 0008).

        Also one whose listener asked for a short lead and then paused: for how long nobody knows.
        """
        has_own_lead = utterance.request.lead_ms is not None and utterance.listener.held_s is None
        is_finished_first = self._is_room_tight and not has_own_lead
        return math.inf if is_finished_first else self._max_lead_s(utterance)

    def _max_lead_s(self, utterance: Utterance) -> float:
        asked_ms = utterance.request.lead_ms
        lead_ms = self._config.lead_ms if asked_ms is None else min(asked_ms, self._config.max_lead_ms)
        held_s = utterance.listener.held_s
        is_to_be_filled = held_s is not None and held_s < lead_ms / 1000
        return math.inf if is_to_be_filled else lead_ms / 1000


def _note(keys: set[int], key: int, is_one: bool) -> None:
    if is_one:
        keys.add(key)
    else:
        keys.discard(key)


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
