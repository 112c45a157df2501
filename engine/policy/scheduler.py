"""Which work next: a pure function of what the live utterances need and of the time. No torch, no clock.

First audio before all else, in the order in which the texts came; then the listeners by what they have left to play.
But a listener about to run dry goes before newcomers, until these have waited long themselves: a late start is better
than a gap, and nobody waits for ever. Listeners who have plenty left are served clause by clause, oldest first: a
clause holds memory until it is finished, and to let all of them creep on together would hold the most of it.
`urgency` is this order, also of those who wait for room in the models (engine/loop/admission.py) or to be read.
Work is one LLM step of a batch or one Euler step of a batch of blocks, so a cancel or a newcomer waits milliseconds.
Where the device runs both side by side, both are chosen; but each slows the other down, so the LLM makes way for first
blocks, and waits where more blocks are ready than the flow can take; its rows gather meanwhile, and a step of many
costs little more than one of few.
"""

import heapq
import math
from collections.abc import Collection
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import NamedTuple

from voicegate.engine.policy.batch_size import BatchSize


class StreamView(NamedTuple):
    """What the scheduler may know of one utterance. A tuple: hundreds are made a step."""

    key: int
    waiting_since_s: float  # its first speakable text came
    deadline_s: float | None  # its listener runs dry; None while nothing has been sent; infinite: it does not play
    max_lead_s: float  # further ahead of its listener than this, it waits; infinite: it does not wait
    wants_llm: bool = False  # an LLM step is possible and useful
    block_frames: int = 0  # of its flow block that is complete and not being solved; 0: none is
    num_blocks: int = 1  # of the flow's memory, that this block takes
    batch: int | None = None  # the running flow batch that solves its block
    begun_s: float | None = 0.0  # its clause was started; None: it waits for room
    needs_prefill: bool = False  # its next LLM step reads the whole prompt

    @property
    def has_block(self) -> bool:
        return self.block_frames > 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Fixed for an engine."""

    # What a batch of blocks may hold: a whole block at least.
    # Higher -> more throughput; lower -> less waiting for company.
    flow_batch: BatchSize
    # The same where all listeners have plenty left, so that none is to wait soon for a batch that takes long.
    calm_flow_batch: BatchSize | None = None  # None: as flow_batch
    # A listener with less than this to play overtakes newcomers: about two blocks' time.
    # Higher -> fewer underruns under load; lower -> sooner first audio under load.
    guard_s: float = 0.15
    # The same while his next clause waits for room: until somebody else's clause ends, and then for a first block.
    # Higher -> fewer underruns where slots are few and slow; lower -> newcomers are begun sooner.
    room_guard_s: float = 1.0
    patience_s: float = 1.0  # a newcomer who has waited for so long is overtaken no more
    # A listener with more than this, which is above the guard, can wait.
    # Higher -> clauses hold memory longer; lower -> less reserve.
    comfort_s: float = 1.0
    # Prompts that one LLM step reads. Higher -> a burst of newcomers is through sooner; lower -> nobody's next token
    # waits long for it.
    max_prefills: int = 8
    is_concurrent: bool = False  # the device runs an LLM step and an Euler step side by side
    llm_yields: bool = True  # see _has_right_of_way; only where is_concurrent


@dataclass(frozen=True, slots=True)
class Room:
    """What can be launched at this moment."""

    takes_llm_step: bool = True
    takes_flow_step: bool = True
    num_new_batches: int = 2  # flow batches that may be begun beside the running ones
    num_blocks: int = 1_000_000  # free, of the flow's memory


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
    wake_at_s: float | None = None

    @property
    def is_idle(self) -> bool:
        return self.llm is None and self.flow is None


_EMPTY_ROOM = Room()


# Ready blocks, in batches, that keep the flow busy while the LLM waits and comes back. Lower -> the flow runs out;
# higher -> the LLM steps for few rows at a time.
_ENOUGH_BATCHES = 2

# Urgency's classes, in their order.
_PRESSING, _NEWCOMER, _LISTENER, _CALM = range(4)


def due_at_s(view: StreamView) -> float:
    """When its next work is allowed: a running batch and a first audio at once, the rest within the lead."""
    if view.deadline_s is None or view.batch is not None or view.max_lead_s == math.inf:
        return -math.inf
    return view.deadline_s - view.max_lead_s


Rank = tuple[int, float, int]


def pressing_at_s(view: StreamView, limits: Limits) -> float:
    """From when on it goes before all who are not pressing.

    Newcomers who wait for room never do: whoever is begun is one listener more, which those who are about to run dry
    can bear least.
    """
    if view.deadline_s is None:
        return math.inf if view.begun_s is None else view.waiting_since_s + limits.patience_s
    return view.deadline_s - (limits.room_guard_s if view.begun_s is None else limits.guard_s)


def urgency(view: StreamView, now_s: float, limits: Limits) -> Rank:
    """Sort key, most urgent first."""
    deadline_s, begun_s = view.deadline_s, view.begun_s
    if deadline_s is not None and begun_s is not None and deadline_s - now_s >= limits.comfort_s:  # most of them
        return (_CALM, begun_s, view.key)
    turn_s = view.waiting_since_s if deadline_s is None else deadline_s
    if pressing_at_s(view, limits) <= now_s:
        return (_PRESSING, turn_s, view.key)
    return (_NEWCOMER if deadline_s is None else _LISTENER, turn_s, view.key)


def decide(views: Collection[StreamView], now_s: float, limits: Limits, room: Room = _EMPTY_ROOM) -> Decision:
    """The work to launch now. Equal inputs give equal decisions. One pass over the views: there may be hundreds."""
    due = _Due(views, now_s, limits)
    first = min((side.first for side in (due.unheard, due.heard) if side.first is not None), default=None)
    if first is None and not (due.decodes or due.prompts):
        return Decision(wake_at_s=due.next_s if due.next_s < math.inf else None)
    flow = _flow_work(due.unheard, due.heard, limits, room) if room.takes_flow_step else None
    is_flow_busy = flow is not None or not room.takes_flow_step
    yields = limits.is_concurrent and limits.llm_yields and is_flow_busy and _has_right_of_way(due, limits)
    llm = _llm_work(due, limits, yields=yields) if room.takes_llm_step else None
    if limits.is_concurrent or llm is None or flow is None:
        return Decision(llm, flow)
    # One processor: the most urgent utterance's next work, and a block before further tokens of it.
    is_llm_first = due.first_lacking is not None and (first is None or due.first_lacking < first)
    return Decision(llm=llm) if is_llm_first else Decision(flow=flow)


def _llm_work(due: "_Due", limits: Limits, *, yields: bool) -> LlmStep | None:
    """`yields`: only if somebody lacks tokens of the next block who is unheard or has little left; all come along."""
    if yields and not due.is_token_urgent:
        return None
    keys = due.decodes + [key for _, key in heapq.nsmallest(limits.max_prefills, due.prompts)]
    return LlmStep(tuple(keys)) if keys else None


class _Side:
    """The flow's batches are of unheard utterances or of heard ones; one of each may run at a time.

    So a first chunk waits for one Euler step of the others, and no batch is left half solved for its equal.
    """

    def __init__(self) -> None:
        self.first: Rank | None = None  # of the most urgent member, running or ready
        self.running: int | None = None
        self.ready: list[tuple[Rank, StreamView]] = []
        self.num_ready_frames = 0
        self.is_calm = True  # all have plenty left, those who lack tokens of their next block among them


class _Due:
    """Whose work may be done now, by what it is."""

    def __init__(self, views: Collection[StreamView], now_s: float, limits: Limits) -> None:
        self.unheard, self.heard = _Side(), _Side()
        self.decodes: list[int] = []
        self.prompts: list[tuple[Rank, int]] = []
        self.first_lacking: Rank | None = None  # of those who have no block, but may have the tokens of one
        self.is_token_urgent = False  # for one of them, who is unheard or has little left
        self.next_s = math.inf  # when another's work is due
        for view in views:
            if not (view.wants_llm or view.block_frames or view.batch is not None):
                continue
            due_s = due_at_s(view)
            if due_s > now_s:
                self.next_s = min(self.next_s, due_s)
            else:
                self._add(view, urgency(view, now_s, limits))

    def _add(self, view: StreamView, rank: Rank) -> None:
        side = self.unheard if view.deadline_s is None else self.heard
        is_calm = rank[0] == _CALM
        if not is_calm:
            side.is_calm = False
        if view.wants_llm:
            if view.needs_prefill:
                self.prompts.append((rank, view.key))
            else:
                self.decodes.append(view.key)
        if view.batch is None and not view.block_frames:
            if not is_calm:
                self.is_token_urgent = True
            if self.first_lacking is None or rank < self.first_lacking:
                self.first_lacking = rank
            return
        if view.batch is not None:
            side.running = view.batch
        else:
            side.ready.append((rank, view))
            side.num_ready_frames += view.block_frames
        if side.first is None or rank < side.first:
            side.first = rank


def _has_right_of_way(due: _Due, limits: Limits) -> bool:
    """Whether tokens that nobody waits for would only slow the flow down: it is at first blocks, or has enough
    in waiting."""
    is_enough = due.heard.num_ready_frames >= _ENOUGH_BATCHES * limits.flow_batch.num_frames
    return due.unheard.first is not None or is_enough


def _flow_work(unheard: _Side, heard: _Side, limits: Limits, room: Room) -> BeginBlocks | AdvanceBatch | None:
    sides = sorted((side for side in (unheard, heard) if side.first is not None), key=attrgetter("first"))
    for side in sides:
        if side.running is not None:
            return AdvanceBatch(side.running)
        if room.num_new_batches:
            size = limits.calm_flow_batch if side.is_calm and limits.calm_flow_batch else limits.flow_batch
            keys = _packed(side.ready, size, room.num_blocks)
            if keys:
                return BeginBlocks(keys)
    return None


def _packed(ready: list[tuple[Rank, StreamView]], size: BatchSize, num_free_blocks: int) -> tuple[int, ...]:
    """The most urgent blocks that fit; what a larger one does not fill, smaller ones behind it may."""
    keys: list[int] = []
    num_frames = size.num_frames
    for _, view in sorted(ready, key=itemgetter(0)):
        if len(keys) == size.num_rows or not num_frames:
            break
        if view.block_frames <= num_frames and view.num_blocks <= num_free_blocks:
            keys.append(view.key)
            num_frames -= view.block_frames
            num_free_blocks -= view.num_blocks
    return tuple(keys)
