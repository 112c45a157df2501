"""A look at one utterance: what it needs now, and when that changes if nothing happens. Starts nothing.

It is looked at when something of it has changed, or when its alarm has come; the roster keeps the answer until then.
"""

import math
from typing import NamedTuple

from voicegate.engine.config import EngineConfig
from voicegate.engine.core.clause import Clause, ClauseState
from voicegate.engine.core.pipeline import Pipeline
from voicegate.engine.core.policy import Limits, Ranked, StreamView, due_at_s, pressing_at_s, urgency
from voicegate.engine.core.reprefills import Reprefills
from voicegate.engine.core.utterance import Utterance


class Waiting(NamedTuple):
    """The next clause of an utterance may begin as soon as there is room for it."""

    view: StreamView
    utterance: Utterance
    clause: Clause
    is_pressing: bool  # it goes before all that are not


class Needs(NamedTuple):
    """Needs of one utterance, as of a look at it."""

    work: Ranked | None = None  # that the lanes may do for it now
    generating: Clause | None = None  # whose LLM pass can go on
    news_tokens: int = 0  # with so many tokens of that pass something is new
    waiting: Waiting | None = None  # for room
    again: Clause | None = None  # a paused pass, to be read again now
    is_stalled: bool = False  # its text has waited too long for more of it
    wants_reading: bool = False
    alarm_s: float = math.inf  # when some of this is different, if nothing happens before


class Look:
    def __init__(self, config: EngineConfig, pipeline: Pipeline, reprefills: Reprefills) -> None:
        self._config = config
        self._pipeline = pipeline
        self._reprefills = reprefills
        self._stall_s = config.stall_ms / 1000 or math.inf
        self._stall_lead_s = config.stall_lead_ms / 1000

    def at(self, utterance: Utterance, now_s: float, limits: Limits, *, is_room_short: bool) -> Needs:
        """Text that grows is taken on first, as far as a reading that is due needs it; and what the LLM has kept."""
        passing = next(((each, each.llm_pass) for each in utterance.clauses if each.llm_pass is not None), None)
        if passing is not None:
            self._pipeline.catch_up(passing[0])
        growing, reads_s = self._reprefills.next_reprefill(utterance, now_s)
        reads_now = reads_s <= now_s
        generating, roomless = self._next_clauses(utterance, growing if reads_now else None)
        work, work_s = self._work(utterance, generating, now_s, limits, is_room_short=is_room_short)
        waiting, room_s = self._room(utterance, roomless, now_s, limits)
        stalls_s = utterance.stalls_at_s(self._stall_s, self._stall_lead_s)
        news_tokens = 0
        if work is not None and generating is not None and generating.is_prefilled:
            news_tokens = self._news_tokens(utterance, generating)
        if passing is not None:
            clause, llm_pass = passing
            # Nothing is new of it before its pass has so many more: the LLM may keep them until then.
            self._pipeline.llm.tell_after(llm_pass.sequence_id, max(news_tokens - len(clause.tokens), 1))
        return Needs(
            work,
            generating,
            news_tokens,
            waiting,
            again=growing if growing is not None and growing.is_paused and reads_now else None,
            is_stalled=stalls_s <= now_s,
            wants_reading=utterance.feed.wants_reading,
            alarm_s=min([each_s for each_s in (work_s, room_s, stalls_s, reads_s) if each_s > now_s], default=math.inf),
        )

    def _next_clauses(self, utterance: Utterance, growing: Clause | None) -> tuple[Clause | None, Clause | None]:
        """The clause whose LLM pass could go on now, and the one that needs room: to begin, or to sound again.

        There is one pass at a time, not too far ahead of the flow. The tokens of a clause that was set aside are made
        at once: others can have its slot then. `growing`: though its text is not complete, it may begin.
        """
        num_ahead, roomless = 0, None
        for clause in utterance.clauses:
            state = clause.state
            if clause.is_silent:  # what follows it can be said when it has gone
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

    def _work(
        self, utterance: Utterance, generating: Clause | None, now_s: float, limits: Limits, *, is_room_short: bool
    ) -> tuple[Ranked | None, float]:
        """Work of its front clause, and of the LLM, if that is due; and when it is, or is of another urgency."""
        if not utterance.clauses:
            return None, math.inf
        front = utterance.clauses[0]
        ready = None  # with a block that is in no batch
        if front.batch is None and front.rendering is not None and front.rendering.flow.is_ready:
            ready = front.rendering.flow
        if generating is None and ready is None and front.batch is None:
            return None, math.inf
        # A clause holds flow memory for as long as it is active: where others wait for room it is finished (ADR 0008).
        # Also one whose listener asked for a short lead and then paused, for a time that is not known.
        has_own_lead = utterance.request.lead_ms is not None and utterance.listener.held_s is None
        is_finished_first = is_room_short and not has_own_lead
        view = StreamView(  # without names, which would take as long again
            utterance.key,
            utterance.waiting_since_s,
            utterance.deadline_s,
            math.inf if is_finished_first else self._max_lead_s(utterance),
            generating is not None,  # wants_llm
            0 if ready is None else ready.next_num_frames,  # block_frames
            0 if ready is None else ready.next_num_blocks,
            front.batch,
            front.begun_s,
            generating is not None and not generating.is_prefilled,  # needs_prefill
            front.awaits_samples,
        )
        due_s = due_at_s(view)
        if due_s > now_s:
            return None, due_s
        rank, changes_s = urgency(view, now_s, limits)
        return (rank, view), changes_s

    def _news_tokens(self, utterance: Utterance, generating: Clause) -> int:
        """With so many, the pass completes the block that its clause waits for, or is far enough ahead."""
        num_more = self._config.llm_ahead_tokens - sum([each.num_ahead_tokens for each in utterance.clauses])
        if generating is utterance.clauses[0] and generating.rendering is not None and generating.batch is None:
            num_missing = generating.rendering.flow.num_missing_tokens
            num_more = min(num_more, num_missing) if num_missing else num_more
        return len(generating.tokens) + num_more

    def _room(
        self, utterance: Utterance, clause: Clause | None, now_s: float, limits: Limits
    ) -> tuple[Waiting | None, float]:
        """For this clause, if it may have some, and whether that presses; and when the next of the two begins."""
        if clause is None:
            return None, math.inf
        view = StreamView(
            key=utterance.key,
            waiting_since_s=utterance.waiting_since_s,
            deadline_s=utterance.deadline_s,
            max_lead_s=self._max_lead_s(utterance),
            begun_s=None,
        )
        waits_s = due_at_s(view)
        if waits_s > now_s:
            return None, waits_s
        presses_s = pressing_at_s(view, limits)
        return Waiting(view, utterance, clause, is_pressing=presses_s <= now_s), presses_s

    def _max_lead_s(self, utterance: Utterance) -> float:
        if utterance.request.is_background:
            return math.inf
        asked_ms = utterance.request.lead_ms
        lead_ms = self._config.lead_ms if asked_ms is None else min(asked_ms, self._config.max_lead_ms)
        held_s = utterance.listener.held_s
        is_to_be_filled = held_s is not None and held_s < lead_ms / 1000
        return math.inf if is_to_be_filled else lead_ms / 1000
