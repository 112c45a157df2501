"""What could be done for an utterance now: questions about its clauses, asked of the models. Changes nothing."""

import math

from voicegate.engine.config import EngineConfig
from voicegate.engine.loop.clause import Clause, ClauseState
from voicegate.engine.loop.pipeline import Pipeline
from voicegate.engine.loop.utterance import Utterance
from voicegate.engine.policy.scheduler import StreamView


class Outlook:
    def __init__(self, config: EngineConfig, pipeline: Pipeline) -> None:
        self._config = config
        self._pipeline = pipeline
        self.is_room_short = False  # somebody waits for a clause to end (admission tells)

    def view(self, key: int, utterance: Utterance) -> StreamView | None:
        """What the scheduler sees of an utterance; None while there is nothing to do for it."""
        if not utterance.clauses or utterance.stamps.first_text_s is None:
            return None
        front = utterance.clauses[0]
        generating = self.generating(utterance)
        block_frames = self._pipeline.block_frames(front)
        if not (generating is not None or block_frames or front.batch is not None):
            return None
        return StreamView(
            key=key,
            waiting_since_s=utterance.stamps.first_text_s,
            deadline_s=utterance.deadline_s,
            max_lead_s=self._max_lead_within_clause_s(utterance),
            wants_llm=generating is not None,
            block_frames=block_frames,
            num_blocks=self._pipeline.num_blocks(front),
            batch=front.batch,
            begun_s=front.begun_s,
            needs_prefill=generating is not None and not generating.is_prefilled,
        )

    def generating(self, utterance: Utterance) -> Clause | None:
        """The clause whose LLM pass can go on now: one an utterance, and not too far ahead of the flow."""
        num_ahead = 0
        for clause in utterance.clauses:
            num_ahead += clause.num_ahead_tokens
            if clause.state is ClauseState.GENERATING:
                is_wanted = num_ahead < self._config.llm_ahead_tokens
                return clause if is_wanted and self._pipeline.can_generate(clause) else None
        return None

    def startable(self, utterance: Utterance) -> Clause | None:
        """The next clause, once the one before has all its tokens, if the flow is not far behind."""
        num_ahead = 0
        for clause in utterance.clauses:
            if clause.state is ClauseState.GENERATING or num_ahead >= self._config.llm_ahead_tokens:
                return None
            if clause.state is ClauseState.WAITING:
                return clause if clause.text_ids else None
            num_ahead += clause.num_ahead_tokens
        return None

    def starts_at_s(self, utterance: Utterance) -> float:
        """When its next clause may begin: at once, or when the listener's lead has come down."""
        if utterance.deadline_s is None:
            return -math.inf
        return utterance.deadline_s - self._max_lead_s(utterance)

    def _max_lead_within_clause_s(self, utterance: Utterance) -> float:
        """A clause holds flow memory for as long as it is active: where that is short it is finished (ADR 0015)."""
        is_finished_first = self.is_room_short and utterance.request.lead_ms is None
        return math.inf if is_finished_first else self._max_lead_s(utterance)

    def _max_lead_s(self, utterance: Utterance) -> float:
        asked_ms = utterance.request.lead_ms
        lead_ms = self._config.lead_ms if asked_ms is None else min(asked_ms, self._config.max_lead_ms)
        return lead_ms / 1000
