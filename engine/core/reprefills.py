"""When a clause whose text still grows is begun or read again, and how many speech tokens it may have by then.

The rules are growth.py's; here they meet an utterance. Nothing is started here.
"""

import math
from dataclasses import dataclass

from voicegate.engine.config import EngineConfig
from voicegate.engine.core import constants
from voicegate.engine.core.clause import Clause, ClauseState
from voicegate.engine.core.growth import Beginning, BlockTime, Needed, beginning
from voicegate.engine.core.utterance import Utterance

_Moment = tuple[Clause | None, float]
_NEVER: _Moment = (None, math.inf)


@dataclass(frozen=True, slots=True)
class FirstBlock:
    is_short: bool
    until: int | None  # of a sentence that is still written: speech tokens of its first reading; None: of all of it


class Reprefills:
    def __init__(
        self,
        config: EngineConfig,
        *,
        lookahead_tokens: int,
        held_back_frames: int,
        block_time: BlockTime | None = None,
    ) -> None:
        """`held_back_frames`: by the vocoder. `block_time`: None where nothing is known of it."""
        self._share = config.growing_share
        self._lookahead_tokens = lookahead_tokens
        self._held_back_frames = held_back_frames + 1  # and one by its packet
        self.block_time = block_time or BlockTime()

    def next_reprefill(self, utterance: Utterance, now_s: float) -> _Moment:
        """The clause to begin or to read again, and when; infinite: not before more text has come.

        A later sentence waits for its end, since there is audio before it, unless its listener has an underrun. None
        is begun where the engine is so slow that what follows could not come in time: its readings cost the others.
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
        if target is not None and has_block(target):
            return _NEVER  # by the time that this one is heard, more is known, and its listener has a block more
        underrun_s = math.inf  # from when on its listener is about to have one
        if utterance.deadline_s is not None:
            begins_s = utterance.deadline_s - self.block_time.later_s(now_s)
            underrun_s = begins_s - constants.UNDERRUN_S
            due_s = begins_s - max(constants.GROWING_LEAD_S, constants.UNDERRUN_S)
            if due_s > now_s:
                return target, due_s
        worth = utterance.tokens_per_letter, self._share_of(utterance)
        if target is None and utterance.deadline_s is None:
            first = self._beginning(utterance, now_s)
            if first is None:
                return _NEVER
            pace = utterance.pace
            needed = Needed.to_begin(
                first.num_tokens + self._lookahead_tokens,
                *worth,
                num_second_tokens=utterance.voice.flow_prompt.second_block_tokens,
                # A gap follows a slow writer's first block in any case: it is heard without waiting for more.
                num_promised=math.inf if pace.is_slow else pace.letters_within(first.covered_s, now_s),
            )
        else:
            is_late = underrun_s <= now_s and not utterance.pace.has_paused(now_s)
            needed = Needed.to_go_on(self.until_block(utterance, target), *worth, is_late=is_late)
        growing = utterance.feed.grow() if needed.are_there(*utterance.feed.pending_letters) else None
        if growing is None or not _has_words(growing, needed):
            return (target, underrun_s) if now_s < underrun_s else _NEVER
        if growing.num_letters <= growing.spent_letters:
            return _NEVER
        utterance.note_sayable(now_s)
        return growing, now_s

    def first_block(self, utterance: Utterance, clause: Clause, now_s: float, *, are_many: bool) -> "FirstBlock":
        """With how many speech tokens a pass begins. `are_many`: many have work due.

        whole text    the short block, if it is heard sooner for that (`_begins_short`) and few have work; else the
                      usual one
        still written the usual one, and its first reading ends there; or with the second, where the engine is slow and
                      the words are worth it
        """
        if not utterance.feed.is_incremental or clause.is_text_complete:
            return FirstBlock(is_short=not are_many and _begins_short(utterance), until=None)
        first = self._beginning(utterance, now_s) if utterance.deadline_s is None else None
        if first is not None:
            num_first = first.num_tokens + self._lookahead_tokens
            worth = utterance.tokens_per_letter, self._share_of(utterance)
            needed = Needed.to_begin(num_first, *worth, num_second_tokens=0, num_promised=math.inf)
            if _has_words(clause, needed):
                return FirstBlock(is_short=False, until=num_first)
        return FirstBlock(is_short=False, until=self.until_block(utterance, clause))

    def until_block(self, utterance: Utterance, clause: Clause | None) -> int:
        """Speech tokens in all that the next block of the clause, and what it looks ahead at, needs of its pass."""
        if clause is None or clause.rendering is None or clause.llm_pass is None:
            return utterance.voice.flow_prompt.first_block_tokens + self._lookahead_tokens
        return clause.llm_pass.silent_filter.num_seen + clause.rendering.flow.num_missing_tokens

    def _share_of(self, utterance: Utterance) -> float:
        """Share of what its words are worth that may be said while more of them follow."""
        pace = utterance.voice.voice.pace
        return self._share or (constants.UNTUNED_SHARE if pace is None else pace.growing_share)

    def _beginning(self, utterance: Utterance, now_s: float) -> Beginning | None:
        prompt = utterance.voice.flow_prompt
        return beginning(
            prompt.first_block_tokens,
            prompt.second_block_tokens,
            held_back_frames=self._held_back_frames,
            first_block_s=self.block_time.soonest_first_s(now_s),
            block_s=self.block_time.expected_later_s(now_s),
            is_strained=self.block_time.is_strained(now_s),
        )


def has_block(clause: Clause) -> bool:
    """Whether one is being made, or can be, of the tokens it has."""
    if clause.rendering is None:
        return False
    return clause.batch is not None or clause.awaits_samples or clause.rendering.flow.is_ready


def _has_words(clause: Clause, needed: Needed) -> bool:
    return needed.are_there(clause.num_sayable_letters, clause.num_letters)


def _comes_first(clause: Clause) -> bool:
    """Before a new clause may begin: one with text of its own, or whose pass is under way."""
    is_begun_or_whole = clause.is_begun or clause.is_text_complete
    return is_begun_or_whole and clause.state in (ClauseState.WAITING, ClauseState.GENERATING)


def _begins_short(utterance: Utterance) -> bool:
    """Whether its next pass, of text that is whole, is heard sooner for a short first block (docs/adr/0007).

    Only its first pass: later ones have a listener with sound to play, or come back from rest and sound as without it.
    A seed promises the same sound whatever the load and whenever the text comes. In quick speech, and in long packets,
    hardly anything is heard of a short first block.
    """
    request = utterance.request
    is_first = not utterance.num_started_clauses and not utterance.feed.is_bistream
    has_short_packets = request.audio.frame_ms <= constants.SHORT_FRAME_MS
    return is_first and request.seed is None and request.speed <= 1.0 and has_short_packets
