"""Which work next: a pure function of whose work is due, in the order of urgency.py. No torch, no clock.

Work is one LLM step of a batch or one Euler step of a batch of blocks, so a cancel or a newcomer waits milliseconds.
Where the device runs both side by side, both are chosen; but each slows the other down. So the flow holds blocks that
nobody is about to need back while a newcomer lacks tokens, and the LLM makes way for first blocks, waits where more
blocks are ready than the flow can take, and is not launched ahead with many rows; they gather meanwhile, and a step of
many costs little more than one of few. Where few have work nothing of listeners is launched ahead on the flow: a
newcomer would wait for it.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from voicegate.engine.core.policy.due import Due, Side
from voicegate.engine.core.policy.urgency import CALM, LISTENER, Limits, Rank, StreamView
from voicegate.engine.flow.batch_size import BatchSize

# Rows of the next LLM step, from which on none is launched ahead of its turn beside the flow: the device has work until
# the host has looked at the last one, and more rows gather. Higher -> the flow is slowed down more; lower -> where rows
# are few each token waits for the host.
_ENOUGH_ROWS: Final = 16
# Of so many LLM steps that a newcomer waits for, one takes along who has plenty left, where all together are more rows
# than that. The others have few rows then: they take half as long and leave the flow more. Higher -> clauses of the
# calm hold memory longer; lower -> newcomers' tokens take longer (docs/adr/0009).
_CALM_STEP_EVERY: Final = 4
# Ready blocks, in batches, that keep the flow busy while the LLM waits and comes back. Lower -> the flow runs out;
# higher -> the LLM steps for few rows at a time.
_ENOUGH_BATCHES = 2
# As many utterances with work due, of a batch's rows, and blocks of the calm go along with a newcomer's: it or the next
# would wait for them in any case; and the flow is launched ahead for listeners, too, whom the host would keep waiting
# else. Higher -> newcomers wait behind more batches at heavy loads; lower -> for more rows, and for what was launched
# ahead, at light ones (docs/adr/0009).
_BUSY: Final = 0.5


@dataclass(frozen=True, slots=True)
class Intake:
    """What can be launched at this moment."""

    takes_llm_step: bool = True
    num_llm_steps: int = 0  # launched so far
    is_llm_busy: bool = False  # one is under way
    takes_flow_step: bool = True
    is_flow_busy: bool = False  # a launch of Euler steps is under way
    num_new_batches: int = 2  # flow batches that may be begun beside the running ones
    num_blocks: int = 1_000_000  # free, of the flow's memory
    has_first_blocks_under_way: bool = False  # launched to their end: nothing of them is to be decided any more


@dataclass(frozen=True, slots=True)
class LlmStep:
    """One decode (or prefill) step for these utterances."""

    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BeginBlocks:
    """Start solving the ready blocks of these utterances together, and take the first Euler step."""

    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AdvanceBatch:
    """One more Euler step of a running batch."""

    batch: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What to launch. `wake_at_s`: where nothing is due, when something will be; None if only an event can help."""

    llm: LlmStep | None = None
    flow: BeginBlocks | AdvanceBatch | None = None
    holds_flow: bool = False  # it has work, and leaves the device to a newcomer's first tokens
    has_prompt_step: bool = False  # one of a voice that is taken up was launched, too: spare_turns.py
    wake_at_s: float | None = None

    @property
    def is_idle(self) -> bool:
        return self.llm is None and self.flow is None and not self.has_prompt_step


_ALL = Intake()


def decide(due: Due, limits: Limits, intake: Intake = _ALL) -> Decision:
    """The work to launch now. Equal inputs give equal decisions."""
    firsts = [(first, side) for side in (due.unheard, due.heard) if (first := side.first) is not None]
    firsts.sort(key=_first)
    shares_device = limits.is_concurrent and not limits.is_llm_apart
    holds_flow = shares_device and due.lacks_first_tokens and bool(firsts) and firsts[0][0][0] >= LISTENER
    takes_flow_step = intake.takes_flow_step and not holds_flow
    is_busy = len(due) >= _BUSY * limits.flow_batch.num_rows
    sides = [side for _, side in firsts]
    turns = [side for side in sides if side is not due.heard] if intake.is_flow_busy and not is_busy else sides
    flow = _flow_work(turns, sides, limits, intake, is_busy=is_busy) if takes_flow_step else None
    is_flow_busy = flow is not None or intake.is_flow_busy or intake.has_first_blocks_under_way
    is_beside_flow = is_flow_busy and shares_device
    is_ahead = intake.is_llm_busy and len(due.decodes) + len(due.prompts) >= _ENOUGH_ROWS
    yields = is_beside_flow and _has_right_of_way(due, limits, intake)
    takes_llm_step = intake.takes_llm_step and not (is_beside_flow and is_ahead)
    llm = _llm_work(due, limits, intake, yields=yields) if takes_llm_step else None
    if limits.is_concurrent or llm is None or flow is None:
        return Decision(llm, flow, holds_flow)
    # One processor: the most urgent utterance's next work, and a block before further tokens of it.
    lacking = min(due.lacking.values(), default=None)
    return Decision(llm=llm) if lacking is not None and lacking < firsts[0][0] else Decision(flow=flow)


def _first(ranked: tuple[Rank, object]) -> Rank:
    return ranked[0]


def _llm_work(due: Due, limits: Limits, intake: Intake, *, yields: bool) -> LlmStep | None:
    """`yields`: only if somebody lacks tokens of the next block who is unheard or about to run dry; all come along,
    but for the calm in most steps of many rows."""
    if yields and not due.is_token_urgent:
        return None
    prompts = heapq.nsmallest(limits.max_prefills, due.prompts, key=due.prompts.__getitem__)
    keys = (*_decodes(due, limits, intake, has_prompts=bool(prompts)), *prompts)
    return LlmStep(keys) if keys else None


def _decodes(due: Due, limits: Limits, intake: Intake, *, has_prompts: bool) -> Iterable[int]:
    """Whose next token is drawn. A prompt makes a step of many lines in any case."""
    leaves_calm = limits.is_concurrent and due.lacks_first_tokens and not has_prompts
    if not leaves_calm or len(due.decodes) <= _ENOUGH_ROWS or not intake.num_llm_steps % _CALM_STEP_EVERY:
        return due.decodes
    return [key for key, rank in due.decodes.items() if rank[0] < CALM] or due.decodes


def _has_right_of_way(due: Due, limits: Limits, intake: Intake) -> bool:
    """Whether tokens that nobody waits for would only slow the flow down: it is at first blocks, or has enough
    in waiting."""
    is_enough = due.heard.num_ready_frames >= _ENOUGH_BATCHES * limits.flow_batch.num_frames
    is_at_first_blocks = due.unheard.running is not None or intake.has_first_blocks_under_way
    return is_enough or is_at_first_blocks or bool(due.unheard.ready)


def _flow_work(
    turns: list[Side], sides: list[Side], limits: Limits, intake: Intake, *, is_busy: bool
) -> BeginBlocks | AdvanceBatch | None:
    """Of the more urgent side of `turns` that has some; all `sides` are asked for company."""
    for side in turns:
        if (running := side.running) is not None:
            return AdvanceBatch(running)
        if intake.num_new_batches:
            size = limits.calm_flow_batch if side.is_calm and limits.calm_flow_batch else limits.flow_batch
            keys = _packed(side.ready, size, intake.num_blocks)
            if keys:
                others = [each for each in sides if each is not side and each.running is None]
                willing = [each.ready if is_busy else _without_calm(each.ready) for each in others]
                company = _company(keys, side, willing, limits.flow_batch, intake) if limits.is_concurrent else ()
                return BeginBlocks((*keys, *company))
    return None


def _company(
    keys: Sequence[int], side: Side, willing: list[dict[int, tuple[Rank, StreamView]]], size: BatchSize, intake: Intake
) -> tuple[int, ...]:
    """Ready blocks of the other side that go along with these: two batches in turn take longer than both in one."""
    views = [side.ready[key][1] for key in keys]
    num_frames = size.num_frames - sum([view.block_frames for view in views])
    room = BatchSize(max(size.num_rows - len(keys), 0), max(num_frames, 0))
    num_free_blocks = intake.num_blocks - sum([view.num_blocks for view in views])
    return tuple(key for ready in willing for key in _packed(ready, room, num_free_blocks))


def _without_calm(ready: dict[int, tuple[Rank, StreamView]]) -> dict[int, tuple[Rank, StreamView]]:
    """Those that somebody needs soon: others would cost a newcomer milliseconds."""
    return {key: ranked for key, ranked in ready.items() if ranked[0][0] < CALM}


def _packed(ready: dict[int, tuple[Rank, StreamView]], size: BatchSize, num_free_blocks: int) -> tuple[int, ...]:
    """The most urgent blocks that fit; what a larger one does not fill, smaller ones behind it may."""
    keys: list[int] = []
    num_frames = size.num_frames
    for _, view in sorted(ready.values(), key=_first):
        if len(keys) == size.num_rows or not num_frames:
            break
        if view.block_frames <= num_frames and view.num_blocks <= num_free_blocks:
            keys.append(view.key)
            num_frames -= view.block_frames
            num_free_blocks -= view.num_blocks
    return tuple(keys)
