"""Who there is, and who needs what: what could be done for each utterance now, or when it will be due.

With hundreds of streams most have enough audio ahead or wait for text. Whatever changes an utterance reports it
(`Entry`), and it is looked at again before the next answer: a step costs what the few that have changed cost.
"""

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar, TypeVarTuple

from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import UtteranceId
from voicegate.engine.loop.clause import Clause, ClauseState, Entry
from voicegate.engine.loop.growth import Growth
from voicegate.engine.loop.pipeline import Pipeline
from voicegate.engine.loop.utterance import Utterance
from voicegate.engine.policy.scheduler import Limits, Rank, StreamView, due_at_s, pressing_at_s, urgency

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
        self, config: EngineConfig, limits: Limits, pipeline: Pipeline, growth: Growth, attempt: Attempt
    ) -> None:
        self._config = config
        self._limits = limits
        self._pipeline = pipeline
        self._growth = growth
        self._attempt = attempt
        self._utterances: dict[int, Utterance] = {}  # by key: the order of submission
        self._by_id: dict[UtteranceId, Utterance] = {}
        self._num_entries = 0
        self._stall_s = config.stall_ms / 1000 or math.inf
        self.is_room_short = False  # some were left waiting for it
        self._changed: set[int] = set()  # to be looked at
        # What those need who were looked at, by key:
        self._due: dict[int, StreamView] = {}
        self._waiting: dict[int, Waiting] = {}
        self._pressing: set[int] = set()  # of those who wait
        self._readers: set[int] = set()
        self._stalled: set[int] = set()
        self._again: dict[int, Clause] = {}  # paused passes that are to be read again
        self._alarms = Alarms()

    # --- who there is -----------------------------------------------------------------------------------------

    def new_entry(self) -> Entry:
        key, self._num_entries = self._num_entries, self._num_entries + 1
        return Entry(key, self._changed)

    def add(self, utterance: Utterance) -> None:
        self._utterances[utterance.entry.key] = self._by_id[utterance.utterance_id] = utterance
        utterance.entry.report()

    def remove(self, utterance: Utterance) -> None:
        key = utterance.entry.key
        del self._utterances[key], self._by_id[utterance.utterance_id]
        self._note(key)

    def __iter__(self) -> Iterator[Utterance]:
        """In the order of submission; some may go meanwhile."""
        return iter(list(self._utterances.values()))

    def __contains__(self, utterance: Utterance) -> bool:
        return utterance.entry.key in self._utterances

    def named(self, utterance_id: UtteranceId) -> Utterance | None:
        return self._by_id.get(utterance_id)

    def owner(self, clause: Clause) -> Utterance | None:
        return self._utterances.get(clause.utterance_key)

    def of(self, keys: Iterable[int]) -> list[Utterance]:
        """Those of them that are still there."""
        return [self._utterances[key] for key in keys if key in self._utterances]

    # --- who needs what ---------------------------------------------------------------------------------------

    def due(self, now_s: float) -> Collection[StreamView]:
        """Work that may be done now. Whether an LLM step is among it may be out of date: see `passes`."""
        self._refresh(now_s)
        return self._due.values()

    def passes(self, keys: Iterable[int]) -> list[Clause]:
        """Of these, the clauses whose LLM pass goes on now.

        Nothing reports that no further step can be launched behind those in flight: that would have all be looked at
        twice a step.
        """
        passes = []
        for utterance in self.of(keys):
            clause = self._attempt(utterance, self._next_pass, utterance)
            if clause is not None and clause.is_active:
                passes.append(clause)
            else:
                utterance.entry.report()
        return passes

    def waiting(self, now_s: float, *, only_pressing: bool) -> list[Waiting]:
        """Whose next clause waits for room, the most urgent first."""
        self._refresh(now_s)
        keys = self._pressing if only_pressing else self._waiting
        return sorted(map(self._waiting.__getitem__, keys), key=lambda each: urgency(each.view, now_s, self._limits))

    @property
    def num_waiting(self) -> int:
        """For room, as of the last look."""
        return len(self._waiting)

    def stalled(self, now_s: float) -> list[Utterance]:
        """Whose text has waited too long for more of it."""
        self._refresh(now_s)
        return self.of(self._stalled)

    def readings(self, now_s: float) -> list[tuple[Utterance, Clause]]:
        """Passes of growing text that are to be read again now."""
        self._refresh(now_s)
        return [(self._utterances[key], clause) for key, clause in self._again.items()]

    def readers(self, now_s: float) -> list[Utterance]:
        """Whose text is to be read on, the most urgent first.

        But behind the others whoever has been read in vain more often: text that has nothing to say may be endless.
        """
        self._refresh(now_s)

        def turn(utterance: Utterance) -> tuple[int, Rank]:
            return utterance.num_vain_bites, urgency(self._beginning(utterance), now_s, self._limits)

        return sorted(self.of(self._readers), key=turn)

    def next_alarm_s(self, now_s: float) -> float | None:
        """When to look again if nothing happens. None: only an event can help."""
        self._refresh(now_s)
        return now_s if self._readers else self._alarms.next_s

    def note_room(self, now_s: float) -> None:
        """Room was given out: whoever waits now waits for others to end."""
        self._refresh(now_s)
        is_short = bool(self._waiting)
        if is_short is not self.is_room_short:
            self.is_room_short = is_short
            self._changed.update(self._utterances)  # who was held back within a clause, and who will be

    # --- looking ----------------------------------------------------------------------------------------------

    def _refresh(self, now_s: float) -> None:
        self._changed.update(self._alarms.ring(now_s))
        while self._changed:
            utterance = self._utterances.get(self._changed.pop())
            if utterance is not None:
                self._attempt(utterance, self._look_at, utterance, now_s)

    def _look_at(self, utterance: Utterance, now_s: float) -> None:
        """Ask all that there is to ask of it; what is not due yet sets its alarm."""
        growing, reads_s = self._growth.next_reading(utterance, now_s)
        clause = self._next_pass(utterance, growing if reads_s <= now_s else None)
        work = self._work(utterance, clause)
        start = self._start(utterance, clause)
        work_s = math.inf if work is None else due_at_s(work)
        start_s = math.inf if start is None else due_at_s(start.view)
        pressing_s = math.inf if start is None else max(start_s, pressing_at_s(start.view, self._limits))
        stalls_s = utterance.stalls_at_s(stall_s=self._stall_s, lead_s=self._config.stall_lead_ms / 1000)
        moments_s = (work_s, start_s, pressing_s, stalls_s, reads_s)
        self._note(
            utterance.entry.key,
            work=work if work_s <= now_s else None,
            start=start if start_s <= now_s else None,
            is_pressing=pressing_s <= now_s,
            is_reader=utterance.feed.wants_reading,
            is_stalled=stalls_s <= now_s,
            again=growing if growing is not None and growing.is_paused and reads_s <= now_s else None,
            alarm_s=min(moment_s if moment_s > now_s else math.inf for moment_s in moments_s),
        )

    def _note(
        self,
        key: int,
        *,
        work: StreamView | None = None,
        start: Waiting | None = None,
        is_pressing: bool = False,
        is_reader: bool = False,
        is_stalled: bool = False,
        again: Clause | None = None,
        alarm_s: float = math.inf,
    ) -> None:
        """What it needs now, in place of what it needed before."""
        if work is None:
            self._due.pop(key, None)
        else:
            self._due[key] = work
        if start is None:
            self._waiting.pop(key, None)
        else:
            self._waiting[key] = start
        (self._pressing.add if is_pressing else self._pressing.discard)(key)
        (self._readers.add if is_reader else self._readers.discard)(key)
        (self._stalled.add if is_stalled else self._stalled.discard)(key)
        if again is None:
            self._again.pop(key, None)
        else:
            self._again[key] = again
        self._alarms.set(key, alarm_s)

    def _next_pass(self, utterance: Utterance, growing: Clause | None = None) -> Clause | None:
        """The clause whose LLM pass could begin or go on now: one an utterance, and not too far ahead of the flow.

        `growing`: though its text is not complete, it may begin.
        """
        num_ahead = 0
        for clause in utterance.clauses:
            if clause.state is ClauseState.WAITING:
                is_known = clause.is_text_complete or clause is growing or utterance.feed.is_bistream
                is_wanted = bool(clause.text_ids) and is_known and num_ahead < self._config.llm_ahead_tokens
                return clause if is_wanted else None
            num_ahead += clause.num_ahead_tokens
            if clause.state is ClauseState.GENERATING:
                is_wanted = num_ahead < self._config.llm_ahead_tokens and self._pipeline.can_generate(clause)
                return clause if is_wanted else None
        return None

    def _work(self, utterance: Utterance, clause: Clause | None) -> StreamView | None:
        """What the scheduler sees of it; None while no step can be taken for it."""
        generating = clause if clause is not None and clause.is_active else None
        front = utterance.clauses[0] if utterance.clauses else None
        block_frames = self._pipeline.block_frames(front) if front is not None else 0
        if front is None or not (generating is not None or block_frames or front.batch is not None):
            return None
        return StreamView(
            key=utterance.entry.key,
            waiting_since_s=utterance.waiting_since_s,
            deadline_s=utterance.deadline_s,
            max_lead_s=self._max_lead_within_clause_s(utterance),
            wants_llm=generating is not None,
            block_frames=block_frames,
            num_blocks=self._pipeline.num_blocks(front),
            batch=front.batch,
            begun_s=front.begun_s,
            needs_prefill=generating is not None and not generating.is_prefilled,
        )

    def _start(self, utterance: Utterance, clause: Clause | None) -> Waiting | None:
        if clause is None or clause.is_active:
            return None
        return Waiting(self._beginning(utterance), utterance, clause)

    def _beginning(self, utterance: Utterance) -> StreamView:
        """Of its next clause."""
        return StreamView(
            key=utterance.entry.key,
            waiting_since_s=utterance.waiting_since_s,
            deadline_s=utterance.deadline_s,
            max_lead_s=self._max_lead_s(utterance),
            begun_s=None,
        )

    def _max_lead_within_clause_s(self, utterance: Utterance) -> float:
        """A clause holds flow memory for as long as it is active: where that is short it is finished (ADR 0015)."""
        is_finished_first = self.is_room_short and utterance.request.lead_ms is None
        return math.inf if is_finished_first else self._max_lead_s(utterance)

    def _max_lead_s(self, utterance: Utterance) -> float:
        asked_ms = utterance.request.lead_ms
        lead_ms = self._config.lead_ms if asked_ms is None else min(asked_ms, self._config.max_lead_ms)
        return lead_ms / 1000


class Alarms:
    """A moment a key at most."""

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
