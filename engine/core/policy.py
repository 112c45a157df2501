"""Whose turn it is and which work is next: pure functions of what utterances need and of the time.

One order holds for the next step, for who waits for room in the models, and for whose text is read: first audio before
all else, in the order in which the texts came; then the listeners by what they have left to play. A listener about to
have an underrun goes before new requests, until these have waited long themselves: a late start is better than a gap,
and nobody waits for ever. Listeners who have plenty left are served clause by clause, oldest first: a clause holds
memory until it is finished, and to let all of them creep on together would hold the most of it.

Work is one LLM step of a batch, or some Euler steps of a batch of blocks, so a cancel or a new request waits
milliseconds. Where the device runs both side by side, both are chosen; but each slows the other down. So the flow holds
blocks that nobody is about to need back while a new request lacks tokens. The LLM makes way for first blocks, waits
where more blocks are ready than the flow can take, and is not launched ahead with many rows; they gather meanwhile, and
a step of many costs little more than one of few. Where few have work nothing of listeners is launched ahead on the
flow: a new request would wait for it. No torch, no clock; all numbers are in `constants.py`.
"""

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, NamedTuple

from voicegate.engine.core import constants
from voicegate.engine.flow.chunking import BatchSize

# Urgency's classes, in their order.
PRESSING, NEW_REQUEST, LISTENER, BUFFERED = range(4)

# By class, then by time; the key decides between equals.
Rank = tuple[int, float, int]


class StreamView(NamedTuple):
    """The scheduler's view of one utterance. A tuple: thousands are made a second."""

    key: int
    waiting_since_s: float  # its first speakable text came
    deadline_s: (
        float | None
    )  # its listener has an underrun; None while nothing has been sent; infinite: it does not play
    max_lead_s: float  # further ahead of its listener than this, it waits; infinite: it does not wait
    wants_llm: bool = False  # an LLM step is possible and useful
    block_frames: int = 0  # of its flow block that is complete and not being solved; 0: none is
    num_blocks: int = 1  # of the flow's memory, that this block takes
    batch: int | None = None  # the running flow batch that solves its block
    begun_s: float | None = 0.0  # its clause was started; None: it waits for room
    needs_prefill: bool = False  # its next LLM step reads the whole prompt
    awaits_samples: bool = False  # of a block, of which all is launched


@dataclass(frozen=True, slots=True)
class Limits:
    """Fixed for an engine."""

    # Limits of a batch of blocks: a whole block at least. Higher -> more throughput; lower -> less waiting for others.
    flow_batch: BatchSize
    # Limits where all listeners have plenty left, so that none is to wait soon for a batch that takes long.
    buffered_flow_batch: BatchSize | None = None  # None: as flow_batch
    # A listener with less than this to play overtakes new requests: about two blocks' time, where many have work.
    # Higher -> fewer underruns under load; lower -> sooner first audio under load.
    guard_s: float = 0.15
    light_guard_s: float = 0.15  # the same where few have work
    # The same while his next clause waits for room: until somebody else's clause ends, and then for a first block.
    # Higher -> fewer underruns where slots are few and slow; lower -> new requests are begun sooner.
    room_guard_s: float = 1.0
    is_concurrent: bool = False  # the device runs an LLM step and an Euler step side by side
    shares_device: bool = True  # and each slows the other down


# --- whose turn it is -----------------------------------------------------------------------------------------


def due_at_s(view: StreamView) -> float:
    """When its next work is allowed: a running batch and a first audio at once, the rest within the lead."""
    if view.deadline_s is None or view.batch is not None or view.max_lead_s == math.inf:
        return -math.inf
    return view.deadline_s - view.max_lead_s


def pressing_at_s(view: StreamView, limits: Limits) -> float:
    """From when on it goes before all who are not pressing.

    New requests who wait for room never do: whoever is begun is one listener more, which those who are about to have an
    underrun can bear least.
    """
    if view.deadline_s is None:
        return math.inf if view.begun_s is None else view.waiting_since_s + constants.PATIENCE_S
    return view.deadline_s - (limits.room_guard_s if view.begun_s is None else limits.guard_s)


def urgency(view: StreamView, now_s: float, limits: Limits) -> Rank:
    """Sort key, most urgent first."""
    if view.begun_s is not None and now_s < _buffered_until_s(view, limits):
        return (BUFFERED, view.begun_s, view.key)
    turn_s = view.waiting_since_s if view.deadline_s is None else view.deadline_s
    if pressing_at_s(view, limits) <= now_s:
        return (PRESSING, turn_s, view.key)
    return (NEW_REQUEST if view.deadline_s is None else LISTENER, turn_s, view.key)


def urgency_changes_at_s(view: StreamView, now_s: float, limits: Limits) -> float:
    """When it is of another class than now, if nothing happens to it; infinite: never."""
    buffered_until_s, presses_s = _buffered_until_s(view, limits), pressing_at_s(view, limits)
    return min(buffered_until_s if buffered_until_s > now_s else math.inf, presses_s if presses_s > now_s else math.inf)


def _buffered_until_s(view: StreamView, limits: Limits) -> float:
    return -math.inf if view.deadline_s is None else view.deadline_s - max(constants.COMFORT_S, limits.guard_s)


# --- whose work is due ----------------------------------------------------------------------------------------

_RANK: Final = itemgetter(0)


class Side:
    """A batch of the flow is begun for unheard utterances or for heard ones; a small one may take others along.

    Each side has one running at a time, so no batch is left half solved for its equal.
    """

    def __init__(self) -> None:
        self.ready: dict[int, tuple[Rank, StreamView]] = {}  # with a block that is in no batch
        self.num_ready_frames = 0
        self._running: dict[int, tuple[Rank, int]] = {}  # with a block in a batch, and which
        self._num_pressed = 0

    @property
    def is_buffered(self) -> bool:
        """All have plenty left, those who lack tokens of their next block among them."""
        return not self._num_pressed

    @property
    def running(self) -> int | None:
        return next((batch for _, batch in self._running.values()), None)

    @property
    def first(self) -> Rank | None:
        """The most urgent member, running or ready."""
        ranked = (*self._running.values(), *self.ready.values())
        return min(ranked, key=_RANK)[0] if ranked else None

    def put(self, view: StreamView, rank: Rank) -> None:
        self._num_pressed += rank[0] != BUFFERED
        if view.batch is not None:
            self._running[view.key] = rank, view.batch
        elif view.block_frames:
            self.ready[view.key] = rank, view
            self.num_ready_frames += view.block_frames

    def drop(self, view: StreamView, rank: Rank) -> None:
        self._num_pressed -= rank[0] != BUFFERED
        self._running.pop(view.key, None)
        if self.ready.pop(view.key, None) is not None:
            self.num_ready_frames -= view.block_frames


class Due:
    """Whose work may be done now, in order and by what it is: kept as it changes, one utterance at a time.

    Hundreds may be due, and few of them change between two decisions.
    """

    def __init__(self) -> None:
        self.unheard, self.heard = Side(), Side()
        self.decodes: dict[int, Rank] = {}  # of whose LLM pass a step may be launched
        self.prompts: dict[int, Rank] = {}  # the same, where it reads the whole prompt
        self.lacking: dict[int, Rank] = {}  # who have no block, but may have the tokens of one
        self._num_urgent_lacking = 0
        self._num_unheard_lacking = 0
        self._all: dict[int, tuple[Rank, StreamView]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[StreamView]:
        return (view for _, view in self._all.values())

    def __contains__(self, key: int) -> bool:
        return key in self._all

    @property
    def is_token_urgent(self) -> bool:
        """Whether somebody lacks tokens of the next block who is unheard, or about to have an underrun."""
        return self._num_urgent_lacking > 0

    @property
    def lacks_first_tokens(self) -> bool:
        """Whether somebody unheard lacks tokens of the first block."""
        return self._num_unheard_lacking > 0

    @property
    def has_blocks(self) -> bool:
        return bool(self.unheard.ready or self.heard.ready)

    def has_blocks_of(self, num_blocks: int) -> bool:
        """Whether one of them fits into so much of the flow's memory."""
        sides = (self.unheard, self.heard)
        return any(view.num_blocks <= num_blocks for side in sides for _, view in side.ready.values())

    def put(self, view: StreamView, rank: Rank) -> None:
        """In place of what it was; there is work of it, and that is due."""
        self.drop(view.key)
        self._all[view.key] = rank, view
        self._side(view).put(view, rank)
        if view.wants_llm:
            (self.prompts if view.needs_prefill else self.decodes)[view.key] = rank
        # A listener about to be heard for the first time lacks nothing yet.
        is_first_on_its_way = view.awaits_samples and view.deadline_s is None
        if view.batch is None and not view.block_frames and not is_first_on_its_way:
            self.lacking[view.key] = rank
            self._count_lacking(view, rank, 1)

    def drop(self, key: int) -> None:
        ranked = self._all.pop(key, None)
        if ranked is None:
            return
        rank, view = ranked
        self._side(view).drop(view, rank)
        self.decodes.pop(key, None)
        self.prompts.pop(key, None)
        if self.lacking.pop(key, None) is not None:
            self._count_lacking(view, rank, -1)

    def _count_lacking(self, view: StreamView, rank: Rank, change: int) -> None:
        if rank[0] < LISTENER:
            self._num_urgent_lacking += change
        if view.deadline_s is None:
            self._num_unheard_lacking += change

    def _side(self, view: StreamView) -> Side:
        return self.unheard if view.deadline_s is None else self.heard


# --- which work is next ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Intake:
    """Work that can be launched at this moment."""

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
    """A decision to launch. `wake_at_s`: where nothing is due, when something will be; None if only an event can
    help."""

    llm: LlmStep | None = None
    flow: BeginBlocks | AdvanceBatch | None = None
    holds_flow: bool = False  # it has work, and leaves the device to a new request's first tokens
    has_prompt_step: bool = False  # one of a voice that is taken up was launched, too: arrivals.py
    lacks_room: bool = False  # there are blocks, and nothing is under way that would make room for them
    wake_at_s: float | None = None

    @property
    def is_idle(self) -> bool:
        return self.llm is None and self.flow is None and not self.has_prompt_step


_ALL = Intake()


def decide(due: Due, limits: Limits, intake: Intake = _ALL) -> Decision:
    """The work to launch now. Equal inputs give equal decisions."""
    firsts = [(first, side) for side in (due.unheard, due.heard) if (first := side.first) is not None]
    firsts.sort(key=_first)
    shares_device = limits.is_concurrent and limits.shares_device
    holds_flow = shares_device and due.lacks_first_tokens and bool(firsts) and firsts[0][0][0] >= LISTENER
    takes_flow_step = intake.takes_flow_step and not holds_flow
    is_busy = len(due) >= constants.BUSY_SHARE * limits.flow_batch.num_rows
    sides = [side for _, side in firsts]
    turns = [side for side in sides if side is not due.heard] if intake.is_flow_busy and not is_busy else sides
    flow = _flow_work(turns, sides, limits, intake, is_busy=is_busy) if takes_flow_step else None
    is_flow_busy = flow is not None or intake.is_flow_busy or intake.has_first_blocks_under_way
    is_beside_flow = is_flow_busy and shares_device
    is_ahead = intake.is_llm_busy and len(due.decodes) + len(due.prompts) >= constants.ENOUGH_ROWS
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
    """`yields`: only if somebody lacks tokens of the next block who is unheard or about to have an underrun; all come
    along, but for buffered ones in most steps of many rows."""
    if yields and not due.is_token_urgent:
        return None
    prompts = heapq.nsmallest(constants.MAX_PREFILLS, due.prompts, key=due.prompts.__getitem__)
    keys = (*_decodes(due, limits, intake, has_prompts=bool(prompts)), *prompts)
    return LlmStep(keys) if keys else None


def _decodes(due: Due, limits: Limits, intake: Intake, *, has_prompts: bool) -> Iterable[int]:
    """Whose next token is drawn. A prompt makes a step of many lines in any case."""
    leaves_buffered = limits.is_concurrent and due.lacks_first_tokens and not has_prompts
    takes_buffered = (
        len(due.decodes) <= constants.ENOUGH_ROWS or not intake.num_llm_steps % constants.BUFFERED_STEP_EVERY
    )
    if not leaves_buffered or takes_buffered:
        return due.decodes
    return [key for key, rank in due.decodes.items() if rank[0] < BUFFERED] or due.decodes


def _has_right_of_way(due: Due, limits: Limits, intake: Intake) -> bool:
    """Whether tokens that nobody waits for would only slow the flow down: it is at first blocks, or has enough
    in waiting."""
    is_enough = due.heard.num_ready_frames >= constants.ENOUGH_BATCHES * limits.flow_batch.num_frames
    is_at_first_blocks = due.unheard.running is not None or intake.has_first_blocks_under_way
    return is_enough or is_at_first_blocks or bool(due.unheard.ready)


def _flow_work(
    turns: list[Side], sides: list[Side], limits: Limits, intake: Intake, *, is_busy: bool
) -> BeginBlocks | AdvanceBatch | None:
    """Work of the more urgent side of `turns` that has some; all `sides` are asked for blocks to take along."""
    for side in turns:
        if (running := side.running) is not None:
            return AdvanceBatch(running)
        if intake.num_new_batches:
            size = limits.buffered_flow_batch if side.is_buffered and limits.buffered_flow_batch else limits.flow_batch
            keys = _packed(side.ready, size, intake.num_blocks)
            if keys:
                others = [each for each in sides if each is not side and each.running is None]
                willing = [each.ready if is_busy else _without_buffered(each.ready) for each in others]
                along = _taken_along(keys, side, willing, limits.flow_batch, intake) if limits.is_concurrent else ()
                return BeginBlocks((*keys, *along))
    return None


def _taken_along(
    keys: Sequence[int], side: Side, willing: list[dict[int, tuple[Rank, StreamView]]], size: BatchSize, intake: Intake
) -> tuple[int, ...]:
    """Ready blocks of the other side that go along with these: two batches in turn take longer than both in one."""
    views = [side.ready[key][1] for key in keys]
    num_frames = size.num_frames - sum([view.block_frames for view in views])
    room = BatchSize(max(size.num_rows - len(keys), 0), max(num_frames, 0))
    num_free_blocks = intake.num_blocks - sum([view.num_blocks for view in views])
    return tuple(key for ready in willing for key in _packed(ready, room, num_free_blocks))


def _without_buffered(ready: dict[int, tuple[Rank, StreamView]]) -> dict[int, tuple[Rank, StreamView]]:
    """Those that somebody needs soon: others would cost a new request milliseconds."""
    return {key: ranked for key, ranked in ready.items() if ranked[0][0] < BUFFERED}


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


def euler_steps_at_once(num_frames: int, *, is_first: bool) -> int:
    """Euler steps of a batch of so many frames that a GPU is given in one launch.

    Each launch costs the engine's thread a decision, two marks and a wake-up: as much as a small batch's step takes the
    device. First blocks are solved in one go: nobody but who has an underrun goes before them.
    """
    most = max(constants.MAX_FRAME_STEPS // max(num_frames, 1), 1)
    return most if is_first else min(most, constants.STEPS_FOR_LISTENERS)
