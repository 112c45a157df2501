"""One utterance's clauses on their way: waiting -> generating -> rendering -> spoken; the last one ends it.

Called within the core's guard, which deals with what it raises.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import structlog

from voicegate.engine.core.clause import Clause, ClauseState
from voicegate.engine.core.pipeline import Pipeline
from voicegate.engine.core.reprefills import Reprefills, has_block
from voicegate.engine.core.utterance import Utterance
from voicegate.engine.llm.backend import SequenceOutput

log = structlog.get_logger()


class Speaking:
    def __init__(
        self,
        pipeline: Pipeline,
        reprefills: Reprefills,
        clock: Callable[[], float],
        *,
        on_finished: Callable[[Utterance], object],
    ) -> None:
        """`on_finished` is told of an utterance whose end event is under way."""
        self._pipeline = pipeline
        self._reprefills = reprefills
        self._clock = clock
        self._on_finished = on_finished

    def take_text(self, utterance: Utterance) -> None:
        """Some of its text was read: more of its clauses is known."""
        if utterance.feed.is_bistream:
            for clause in utterance.clauses:
                self._pipeline.feed(clause)
        self._retire_spoken(utterance)

    def start(self, utterance: Utterance, clause: Clause, *, are_many: bool) -> None:
        """There is room for it: its pass begins, or what was set aside sounds again. `are_many`: many have work due."""
        if clause.is_set_aside:
            self._pipeline.render(clause, utterance.voice, speed=utterance.request.speed)
            return
        first = self._reprefills.first_block(utterance, clause, self._clock(), are_many=are_many)
        clause.begins_short = first.is_short
        self._pipeline.start(
            clause,
            utterance.voice,
            is_streaming=utterance.feed.is_bistream,
            speed=utterance.request.speed,
            # Seeds of one utterance's clauses differ, and depend on nothing else. They stay within 63 bits.
            seed=(utterance.seed * 1_000_003 + utterance.num_started_clauses) % 2**63,
            until=first.until,
        )
        clause.begun_s = self._clock()
        # Later ones wait for their listeners, words that come one by one for their writer: neither says what it takes.
        if utterance.deadline_s is None and not utterance.feed.is_bistream:
            clause.prefill_since_s = clause.begun_s
        utterance.num_started_clauses += 1
        if utterance.stamps.llm_started_s is None:
            utterance.stamps.llm_started_s = clause.begun_s

    def set_aside(self, utterance: Utterance) -> None:
        """All of its clauses: the front one would wait for ever for what a later one holds."""
        for clause in utterance.clauses:
            self._pipeline.set_aside(clause)
            clause.prefill_since_s = clause.second_since = None  # it waits for room now

    def read_again(self, utterance: Utterance, clause: Clause) -> None:
        """A pass of text that grows goes on, with all words known by now."""
        until = None if clause.is_text_complete else self._reprefills.until_block(utterance, clause)
        self._pipeline.read_again(clause, utterance.voice, until=until)
        # After its last reading a block waits for its listener, and says nothing of what one takes. Nor does the rest
        # of one whose reading the model ended.
        clause.prefill_since_s = None if until is None or clause.spent_letters else self._clock()
        clause.second_since = None

    def take_output(self, utterance: Utterance, clause: Clause, output: SequenceOutput) -> None:
        self._pipeline.take_tokens(clause, output)
        if output.tokens and utterance.stamps.first_token_s is None:
            utterance.stamps.first_token_s = self._clock()
        if output.is_final:
            if output.is_truncated:
                utterance.is_truncated = True
                log.warning("clause_truncated", utterance=utterance.utterance_id, num_tokens=len(clause.tokens))
                if not clause.is_text_complete:
                    utterance.feed.give_up(clause)
            if clause.state is ClauseState.SPOKEN:
                if self._tries_again(utterance, clause):
                    return
                utterance.align(clause, delivers=False)
            self._retire_spoken(utterance)

    def take_samples(self, utterance: Utterance, clause: Clause, samples: npt.NDArray[np.float32]) -> None:
        if clause.start_ms is None:
            clause.start_ms = utterance.audio_ms
        self._note_block_time(utterance, clause)
        self._pipeline.catch_up(clause)  # how long it is goes by all that is known
        utterance.align(clause, delivers=len(samples) > 0)
        utterance.deliver(samples, self._clock())
        self._retire_spoken(utterance)

    def _note_block_time(self, utterance: Utterance, clause: Clause) -> None:
        now_s, is_first = self._clock(), utterance.deadline_s is None
        took = self._reprefills.block_time.took
        if clause.prefill_since_s is not None:
            took(now_s - clause.prefill_since_s, now_s, is_first=is_first)
            clause.prefill_since_s = None
            # A growing text's first reading that makes two blocks. An engine that was slow learns from these alone that
            # it is quick again.
            if is_first and not clause.given_ids and (not clause.is_paused or has_block(clause)):
                clause.second_since = now_s, clause.num_rendered_tokens
        elif clause.second_since is not None:
            since_s, num_rendered_tokens = clause.second_since
            if clause.num_rendered_tokens > num_rendered_tokens:  # else it is the rest of the first block
                took(now_s - since_s, now_s, is_first=False)
                clause.second_since = None

    def _tries_again(self, utterance: Utterance, clause: Clause) -> bool:
        """The LLM has made nothing of words: once more, with the next seed, unless its client has given one."""
        is_able = clause.is_unheard and clause.is_text_complete and not clause.is_second_try
        if not is_able or utterance.request.seed is not None:
            return False
        log.info("words_tried_again", utterance=utterance.utterance_id, num_letters=clause.num_letters)
        clause.is_second_try = True
        self._pipeline.start_over(clause)
        return True

    def _retire_spoken(self, utterance: Utterance) -> None:
        """Drop clauses from the front that are spoken or have nothing to say; after the last it ends, or rests."""
        now_s = self._clock()
        while utterance.clauses:
            front = utterance.clauses[0]
            if front.state is not ClauseState.SPOKEN and not front.is_silent:
                return
            self._pipeline.release(front)
            utterance.clauses.popleft()
            utterance.note_spoken(front)
            if front.is_unheard:
                self._pipeline.tally.counters["clauses_unheard"] += 1
                log.warning("words_without_sound", utterance=utterance.utterance_id, num_letters=front.num_letters)
            if front.flush_ids and utterance.is_unheard:
                self._finish(utterance)
                return
            utterance.pause(front.pause_ms, now_s)
            utterance.answer_flushes(front, now_s)
        if utterance.is_finished:
            self._finish(utterance)
        else:
            utterance.rest_if_spoken()

    def _finish(self, utterance: Utterance) -> None:
        utterance.finish()
        self._on_finished(utterance)
