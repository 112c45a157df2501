"""When a clause whose text still grows is begun or read again, and how many speech tokens it may have by then.

The rules are policy/growth.py's; here they meet an utterance. Nothing is started here.
"""

import math

from voicegate.engine.config import EngineConfig
from voicegate.engine.loop.clause import Clause, ClauseState
from voicegate.engine.loop.utterance import Utterance
from voicegate.engine.policy.growth import GrowthLimits, TurnTime, covered_s

_Moment = tuple[Clause | None, float]
_NEVER: _Moment = (None, math.inf)


class Growth:
    def __init__(self, config: EngineConfig, *, lookahead_tokens: int) -> None:
        self._limits = GrowthLimits(config.growing_share, config.growing_lead_ms / 1000)
        self._lookahead_tokens = lookahead_tokens
        self.turn = TurnTime()

    def next_reading(self, utterance: Utterance, now_s: float) -> _Moment:
        """The clause to begin or to read again, and when; infinite: not before more text has come.

        A later sentence waits for its end behind the audio before it, unless its listener runs dry.
        """
        if not utterance.feed.is_incremental:
            return _NEVER
        target = None
        for clause in utterance.clauses:
            if clause.is_paused:
                target = clause
                break
        if target is not None and target.is_text_complete:
            return target, now_s
        if target is not None and target.is_set_aside:
            return _NEVER
        if not utterance.feed.has_growing or (target is None and any(map(_comes_first, utterance.clauses))):
            return _NEVER
        due_s, dry_s = self._due_s(utterance)
        if due_s > now_s:
            return target, due_s
        growing = utterance.feed.grow()
        if growing is None:
            return _NEVER
        if not self._is_known_enough(utterance, growing, now_s, is_dry=dry_s <= now_s):
            return (target, dry_s) if now_s < dry_s else _NEVER
        return growing, now_s

    def until(self, utterance: Utterance, clause: Clause) -> int:
        """Speech tokens in all that the next block of the clause, and what it looks ahead at, needs of its pass."""
        if clause.rendering is None or clause.llm_pass is None:
            return utterance.voice.flow_prompt.first_block_tokens + self._lookahead_tokens
        return clause.llm_pass.silent_filter.num_seen + max(clause.rendering.flow.num_missing_tokens, 1)

    def _due_s(self, utterance: Utterance) -> tuple[float, float]:
        """When its next block is due, and from when on its listener is about to run dry."""
        if utterance.deadline_s is None:
            return -math.inf, math.inf
        return self._limits.next_block_s(utterance.deadline_s, self.turn.seconds)

    def _is_known_enough(self, utterance: Utterance, clause: Clause, now_s: float, *, is_dry: bool) -> bool:
        """For the next block; and before the first, so much that the second will not have to wait for its words."""
        until, pace = self.until(utterance, clause), utterance.tokens_per_letter
        if until > self._limits.max_tokens(clause.num_sayable_letters, pace, is_dry=is_dry):
            return False
        if clause.is_begun or utterance.deadline_s is not None:
            return True
        prompt = utterance.voice.flow_prompt
        seconds = covered_s(prompt.first_block_tokens, self.turn.seconds)
        letters = clause.num_sayable_letters + utterance.pace.letters_within(seconds, now_s)
        return until + prompt.second_block_tokens <= self._limits.max_tokens(letters, pace)


def _comes_first(clause: Clause) -> bool:
    """Before a new clause may begin: one with text of its own, or whose pass is under way."""
    is_begun_or_whole = clause.is_begun or clause.is_text_complete
    return is_begun_or_whole and clause.state in (ClauseState.WAITING, ClauseState.GENERATING)
