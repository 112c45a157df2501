"""When a clause whose text still grows is begun or read again, and how many speech tokens it may have by then.

The rules are policy/growth.py's; here they meet an utterance. Nothing is started here.
"""

import math

from voicegate.engine.config import EngineConfig
from voicegate.engine.loop.clause import Clause, ClauseState
from voicegate.engine.loop.utterance import Utterance
from voicegate.engine.policy.growth import (
    DRY_SHARE,
    PROMISED_SHARE,
    UNTUNED_SHARE,
    Beginning,
    BlockTime,
    Worth,
    beginning,
    next_block_s,
)

_Moment = tuple[Clause | None, float]
_NEVER: _Moment = (None, math.inf)


class Growth:
    def __init__(self, config: EngineConfig, *, lookahead_tokens: int, held_back_frames: int) -> None:
        """`held_back_frames`: by the vocoder."""
        self._share = config.growing_share
        self._lead_s = config.growing_lead_ms / 1000
        self._lookahead_tokens = lookahead_tokens
        self._held_back_frames = held_back_frames + 1  # and one by its packet
        self.block_time = BlockTime()

    def next_reading(self, utterance: Utterance, now_s: float) -> _Moment:
        """The clause to begin or to read again, and when; infinite: not before more text has come.

        A later sentence waits for its end behind the audio before it, unless its listener runs dry. And none is begun
        where the engine is so slow that what follows could not come in time: the readings would cost the others.
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
        if target is not None and _has_block(target):
            return _NEVER  # by the time that this one is heard, more is known, and its listener has a block more
        due_s, dry_s = self._due_s(utterance, now_s)
        if due_s > now_s:
            return target, due_s
        if target is None and utterance.deadline_s is None:
            first = self._beginning(utterance, now_s)
            if first is None:
                return _NEVER
            num_letters = self._letters_to_begin(utterance, first, now_s)
        else:
            num_letters = self._letters_to_go_on(utterance, target, is_dry=dry_s <= now_s)
        growing = utterance.feed.grow() if utterance.feed.num_pending_letters >= num_letters else None
        if growing is None or growing.num_sayable_letters < num_letters:
            return (target, dry_s) if now_s < dry_s else _NEVER
        utterance.note_sayable(now_s)
        return growing, now_s

    def until(self, utterance: Utterance, clause: Clause, now_s: float) -> int:
        """Speech tokens in all that its next reading may come to: of one block and what that looks ahead at.

        A first reading makes two where the engine is slow and the words are worth it.
        """
        num_tokens = self._until_block(utterance, clause)
        first = self._beginning(utterance, now_s) if utterance.deadline_s is None and not clause.is_begun else None
        if first is not None:
            num_first = first.num_tokens + self._lookahead_tokens
            if self._worth(utterance).letters_for(num_first) <= clause.num_sayable_letters:
                return num_first
        return num_tokens

    def _until_block(self, utterance: Utterance, clause: Clause | None) -> int:
        """That the next block of the clause, and what it looks ahead at, needs of its pass."""
        if clause is None or clause.rendering is None or clause.llm_pass is None:
            return utterance.voice.flow_prompt.first_block_tokens + self._lookahead_tokens
        return clause.llm_pass.silent_filter.num_seen + clause.rendering.flow.num_missing_tokens

    def _due_s(self, utterance: Utterance, now_s: float) -> tuple[float, float]:
        """When its next block is due, and from when on its listener is about to run dry."""
        if utterance.deadline_s is None:
            return -math.inf, math.inf
        return next_block_s(utterance.deadline_s, lead_s=self._lead_s, block_s=self.block_time.later_s(now_s))

    def _letters_to_go_on(self, utterance: Utterance, target: Clause | None, *, is_dry: bool) -> float:
        """Known, for the next block of a listener who has some."""
        num_tokens = self._until_block(utterance, target)
        return self._worth(utterance).letters_for(num_tokens, least_share=DRY_SHARE if is_dry else 0.0)

    def _letters_to_begin(self, utterance: Utterance, first: Beginning, now_s: float) -> float:
        """Known, for the first reading; so many that the next one will not have to wait for its words."""
        worth, until = self._worth(utterance), first.num_tokens + self._lookahead_tokens
        num_later = worth.letters_for(
            until + utterance.voice.flow_prompt.second_block_tokens, least_share=PROMISED_SHARE
        )
        return max(worth.letters_for(until), num_later - utterance.pace.letters_within(first.covered_s, now_s))

    def _worth(self, utterance: Utterance) -> Worth:
        pace = utterance.voice.voice.pace
        share = self._share or (UNTUNED_SHARE if pace is None else pace.growing_share)
        return Worth(utterance.tokens_per_letter, share)

    def _beginning(self, utterance: Utterance, now_s: float) -> Beginning | None:
        prompt = utterance.voice.flow_prompt
        return beginning(
            prompt.first_block_tokens,
            prompt.second_block_tokens,
            held_back_frames=self._held_back_frames,
            first_block_s=self.block_time.soonest_first_s(now_s),
            block_s=self.block_time.later_s(now_s),
            is_strained=self.block_time.is_strained(now_s),
        )


def _has_block(clause: Clause) -> bool:
    """Whether one is being made, or can be, of the tokens it has."""
    return clause.rendering is not None and (clause.batch is not None or clause.rendering.flow.is_ready)


def _comes_first(clause: Clause) -> bool:
    """Before a new clause may begin: one with text of its own, or whose pass is under way."""
    is_begun_or_whole = clause.is_begun or clause.is_text_complete
    return is_begun_or_whole and clause.state in (ClauseState.WAITING, ClauseState.GENERATING)
