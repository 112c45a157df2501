"""Whose turn it is and which work is next: pure functions of what utterances need and of the time.

One order holds for the next step, for room in the models, and for whose text is read:

PRESSING     listeners about to have an underrun, and new requests whose clause was begun and who have waited too long.
             A late start is better than a gap, but none may wait for ever.
NEW_REQUEST  first audio, in the order in which the texts came.
LISTENER     by what they have left to play.
BUFFERED     listeners with plenty left, the oldest clause first. A clause holds memory until it is finished, and all of
             them together would hold the most if they crept on together.

Work is one LLM step of a batch, or some Euler steps of a batch of blocks: a cancel or a new request waits
milliseconds. A device that runs both side by side gets both, but each slows the other down. So:

* While a new request lacks tokens, the flow holds back blocks that are not needed soon.
* The LLM makes way for first blocks, and waits where more blocks are ready than the flow can take.
* The LLM is not launched ahead with many rows. More gather meanwhile, and a step of many costs little more than one of
  few.
* Where few have work, no block of a listener is launched ahead: a new request would wait for it.

Background work, which no listener waits for, is outside this order. Where nothing else is due it has all of the device.
Else a GPU takes a little of it along: it fills every fourth LLM step, and adds blocks to listeners' batches.

No torch, no clock; all numbers are in `constants.py`.
"""

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

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
    deadline_s: float | None  # its listener has an underrun; None: nothing was heard yet; infinite: it does not play
    max_lead_s: float  # further ahead of its listener than this, it waits; infinite: it does not wait
    wants_llm: bool = False  # an LLM step is possible and useful
    block_frames: int = 0  # of its flow block that is complete and not being solved; 0: none is
    num_blocks: int = 1  # of the flow's memory, that this block takes
    batch: int | None = None  # the running flow batch that solves its block
    begun_s: float | None = 0.0  # its clause was started; None: it waits for room
    needs_prefill: bool = False  # its next LLM step reads the whole prompt
    awaits_samples: bool = False  # of a block, of which all is launched


# A rank ends with its key, so two of these are never compared by their views.
Ranked = tuple[Rank, StreamView]


@dataclass(frozen=True, slots=True)
class Limits:
    """Fixed for an engine; what higher and lower mean is told in `constants.py` and `config.py`."""

    flow_batch: BatchSize  # of a batch of blocks, a whole block at least
    # The same where all listeners have plenty left, so that none will soon wait for a batch that takes long.
    buffered_flow_batch: BatchSize | None = None  # None: as flow_batch
    guard_s: float = 0.15  # a listener with less than this to play overtakes new requests
    light_guard_s: float = 0.15  # the same where few have work
    room_guard_s: float = 1.0  # the same while its next clause waits for room: for another's end and a first block
    is_concurrent: bool = False  # the device runs an LLM step and an Euler step side by side
    shares_device: bool = True  # and each slows the other down


# --- whose turn it is -----------------------------------------------------------------------------------------


def due_at_s(view: StreamView) -> float:
    """When its next work is allowed: a running batch and a first audio at once, the rest within the lead."""
    if view.deadline_s is None or view.batch is not None or view.max_lead_s == math.inf:
        return -math.inf
    return view.deadline_s - view.max_lead_s


def pressing_at_s(view: StreamView, limits: Limits) -> float:
    """From when on it goes before all that are not pressing.

    A new request that waits for room never does. Once begun it is one listener more, and those who are about to have
    an underrun can bear that least.
    """
    if view.deadline_s is None:
        return math.inf if view.begun_s is None else view.waiting_since_s + constants.PATIENCE_S
    return view.deadline_s - (limits.room_guard_s if view.begun_s is None else limits.guard_s)


def urgency(view: StreamView, now_s: float, limits: Limits) -> tuple[Rank, float]:
    """Sort key, most urgent first; and when it is of another class, if nothing happens to it (infinite: never)."""
    presses_s = pressing_at_s(view, limits)
    turn_s = view.waiting_since_s if view.deadline_s is None else view.deadline_s
    buffered_until_s = -math.inf if view.deadline_s is None else turn_s - max(constants.COMFORT_S, limits.guard_s)
    changes_s = presses_s if presses_s > now_s else math.inf
    if now_s < buffered_until_s:
        changes_s = min(changes_s, buffered_until_s)
        if view.begun_s is not None:
            return (BUFFERED, view.begun_s, view.key), changes_s
    if presses_s <= now_s:
        return (PRESSING, turn_s, view.key), changes_s
    return (NEW_REQUEST if view.deadline_s is None else LISTENER, turn_s, view.key), changes_s


# --- which work is next ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Intake:
    """Work that can be launched at this moment."""

    takes_llm_step: bool = True
    num_llm_steps: int = 0  # launched so far
    is_llm_busy: bool = False  # one is under way
    takes_flow_step: bool = True
    is_flow_busy: bool = False  # a launch of Euler steps is under way
    is_token2wav_idle: bool = False  # nothing of flow and vocoder is under way: nothing there will make room
    num_new_batches: int = 2  # flow batches that may be begun beside the running ones
    num_blocks: int = 1_000_000  # free, of the flow's memory
    has_first_blocks_under_way: bool = False  # launched to their end: nothing of them is to be decided any more


@dataclass(frozen=True, slots=True)
class Decision:
    """Launches, by the keys of utterances. `wake_at_s`: where nothing is due, when something will be; None if only an
    event can help."""

    llm: tuple[int, ...] = ()  # one step of these, which reads a prompt or draws a token
    begins: tuple[int, ...] = ()  # a batch of their ready blocks is begun, and gets its first Euler steps
    advances: int | None = None  # this running batch gets its next ones
    holds_flow: bool = False  # it has work, and leaves the device to a new request's first tokens
    has_prompt_step: bool = False  # one of a voice that is taken up was launched, too: arrivals.py
    lacks_room: bool = False  # there are blocks, and nothing is under way that would make room for them
    wake_at_s: float | None = None

    @property
    def has_flow_step(self) -> bool:
        return bool(self.begins) or self.advances is not None

    @property
    def is_idle(self) -> bool:
        return not (self.llm or self.has_flow_step or self.has_prompt_step)


class _Side:
    """Blocks of new requests, or of listeners. A batch is begun for one side; a small one may take others along.

    Each side has one batch running at a time, so none is left half solved for its equal.
    """

    def __init__(self) -> None:
        self.ready: list[Ranked] = []  # with a block that is in no batch
        self.running: int | None = None  # the batch that solves a block of some
        self.first: Rank | None = None  # of those, the most urgent
        self.is_buffered = True  # all have plenty left, also those that lack tokens of their next block

    def note(self, rank: Rank) -> None:
        self.first = rank if self.first is None else min(self.first, rank)


class _Work:
    """Work of all utterances that are due, by kind. Sorted out anew for each decision."""

    def __init__(self, due: Iterable[Ranked], background: Iterable[Ranked]) -> None:
        self.background: list[Ranked] = []  # that may go along
        self.new_requests, self.listeners = _Side(), _Side()
        self.decodes: list[Ranked] = []  # whose LLM pass may go on
        self.prompts: list[Ranked] = []  # likewise, by reading the whole prompt
        self.lacking: list[Ranked] = []  # without a block, but with an LLM step that may bring one
        self.lacks_first_tokens = False  # some of those are new requests
        self.is_token_urgent = False  # some are new requests, or about to have an underrun
        for ranked in due:
            rank, view = ranked
            side = self.new_requests if view.deadline_s is None else self.listeners
            if rank[0] != BUFFERED:
                side.is_buffered = False
            if view.wants_llm:
                (self.prompts if view.needs_prefill else self.decodes).append(ranked)
            if view.batch is not None:
                side.running = view.batch if side.running is None else side.running
            elif view.block_frames:
                side.ready.append(ranked)
            else:
                # A listener about to be heard for the first time lacks nothing yet.
                if not (view.awaits_samples and view.deadline_s is None):
                    self.lacking.append(ranked)
                    self.lacks_first_tokens = self.lacks_first_tokens or view.deadline_s is None
                    self.is_token_urgent = self.is_token_urgent or rank[0] < LISTENER
                continue
            side.note(rank)
        for ranked in background:
            rank, view = ranked
            if view.batch is None:
                self.background.append(ranked)
            elif self.listeners.running is None:  # the device keeps few batches: it is finished as if it were theirs
                self.listeners.running = view.batch
                self.listeners.note(rank)


_ALL = Intake()
_NONE: Mapping[int, Ranked] = MappingProxyType({})


def decide(
    due: Mapping[int, Ranked], limits: Limits, intake: Intake = _ALL, background: Mapping[int, Ranked] = _NONE
) -> Decision:
    """The work to launch now. Equal inputs give equal decisions. `background`: what no listener waits for."""
    if background and not due:  # a new request would wait for a batch of theirs: it is no larger than others'
        due, background, limits = background, _NONE, replace(limits, buffered_flow_batch=None)
    work = _Work(due.values(), background.values() if limits.is_concurrent else ())
    sides = [side for side in (work.new_requests, work.listeners) if side.first is not None]
    sides.sort(key=_first)
    shares_device = limits.is_concurrent and limits.shares_device
    holds_flow = shares_device and work.lacks_first_tokens and bool(sides) and _first(sides[0])[0] >= LISTENER
    begins, advances = ((), None) if holds_flow else _flow_step(work, sides, limits, intake, num_due=len(due))
    has_flow_step = bool(begins) or advances is not None
    is_beside_flow = shares_device and (has_flow_step or intake.is_flow_busy or intake.has_first_blocks_under_way)
    llm = _llm_step(work, limits, intake, is_beside_flow=is_beside_flow)
    if llm and has_flow_step and not limits.is_concurrent:
        # One processor: the most urgent utterance's next work, and a block before further tokens of it.
        lacking = min(work.lacking, default=None)
        if lacking is not None and lacking[0] < _first(sides[0]):
            begins, advances = (), None
        else:
            llm = ()
    decision = Decision(llm, begins, advances, holds_flow)
    # An LLM's work takes room, and makes none: while it goes on no listener would be heard.
    ready = (*work.new_requests.ready, *work.listeners.ready) if intake.is_token2wav_idle and not holds_flow else ()
    if ready and (decision.is_idle or all(view.num_blocks > intake.num_blocks for _, view in ready)):
        return Decision(lacks_room=True)
    return decision


def _first(side: _Side) -> Rank:
    assert side.first is not None
    return side.first


def _llm_step(work: _Work, limits: Limits, intake: Intake, *, is_beside_flow: bool) -> tuple[int, ...]:
    """All whose pass can go on; but while a new request waits for tokens most steps leave out the buffered ones."""
    is_ahead = intake.is_llm_busy and len(work.decodes) + len(work.prompts) >= constants.ENOUGH_ROWS
    if not intake.takes_llm_step or (is_beside_flow and is_ahead):
        return ()
    if is_beside_flow and not work.is_token_urgent and _flow_goes_first(work, limits, intake):
        return ()
    prompts = heapq.nsmallest(constants.MAX_PREFILLS, work.prompts)
    decodes = work.decodes
    # A prompt makes a step of many lines in any case.
    takes_buffered = len(decodes) <= constants.ENOUGH_ROWS or not intake.num_llm_steps % constants.BUFFERED_STEP_EVERY
    if limits.is_concurrent and work.lacks_first_tokens and not prompts and not takes_buffered:
        decodes = [ranked for ranked in decodes if ranked[0][0] < BUFFERED] or decodes
    rows = [*decodes, *prompts]
    if rows and work.background and not intake.num_llm_steps % constants.BUFFERED_STEP_EVERY:
        willing = [ranked for ranked in work.background if ranked[1].wants_llm]
        prompt = min([ranked for ranked in willing if ranked[1].needs_prefill], default=None)
        willing = [ranked for ranked in willing if not ranked[1].needs_prefill or (ranked is prompt and not prompts)]
        rows += heapq.nsmallest(max(constants.ENOUGH_ROWS - len(rows), constants.BACKGROUND_ALONG), willing)
    return tuple([view.key for _, view in rows])


def _flow_goes_first(work: _Work, limits: Limits, intake: Intake) -> bool:
    """Whether tokens that are not urgent would only slow it down: it is at first blocks, or has enough in waiting."""
    num_frames = sum([view.block_frames for _, view in work.listeners.ready])
    is_enough = num_frames >= constants.ENOUGH_BATCHES * limits.flow_batch.num_frames
    is_at_first_blocks = work.new_requests.running is not None or intake.has_first_blocks_under_way
    return is_enough or is_at_first_blocks or bool(work.new_requests.ready)


def _flow_step(
    work: _Work, sides: list[_Side], limits: Limits, intake: Intake, *, num_due: int
) -> tuple[tuple[int, ...], int | None]:
    """For the more urgent of `sides` that has some: blocks to begin, or the batch to advance."""
    if not intake.takes_flow_step:
        return (), None
    is_busy = num_due >= constants.BUSY_SHARE * limits.flow_batch.num_rows
    for side in sides:
        if side is work.listeners and intake.is_flow_busy and not is_busy:
            continue
        if side.running is not None:
            return (), side.running
        size = limits.buffered_flow_batch if side.is_buffered and limits.buffered_flow_batch else limits.flow_batch
        taken = _packed(side.ready, size, intake.num_blocks) if intake.num_new_batches else []
        if not taken:
            continue
        other = work.listeners if side is work.new_requests else work.new_requests
        if limits.is_concurrent and other.running is None:
            # Two batches in turn take longer than both in one. But where few have work, a block that is not needed soon
            # would cost a new request milliseconds.
            willing = other.ready if is_busy else [ranked for ranked in other.ready if ranked[0][0] < BUFFERED]
            taken += _packed(willing, limits.flow_batch, intake.num_blocks, beside=taken)
        if work.background and side is work.listeners:
            ready = [ranked for ranked in work.background if ranked[1].block_frames]
            ready = heapq.nsmallest(constants.BACKGROUND_ALONG, ready)
            taken += _packed(ready, limits.flow_batch, intake.num_blocks, beside=taken)
        return tuple([view.key for view in taken]), None
    return (), None


def _packed(
    ready: Iterable[Ranked], size: BatchSize, num_free_blocks: int, *, beside: Sequence[StreamView] = ()
) -> list[StreamView]:
    """The most urgent blocks that fit `beside` others; what a larger one does not fill, smaller ones after it may."""
    views: list[StreamView] = []
    num_rows = size.num_rows - len(beside)
    num_frames = size.num_frames - sum([view.block_frames for view in beside])
    num_free_blocks -= sum([view.num_blocks for view in beside])
    for _, view in sorted(ready):
        if len(views) >= num_rows or num_frames <= 0:
            break
        if view.block_frames <= num_frames and view.num_blocks <= num_free_blocks:
            views.append(view)
            num_frames -= view.block_frames
            num_free_blocks -= view.num_blocks
    return views


def euler_steps_at_once(num_frames: int, *, is_first: bool) -> int:
    """Euler steps of a batch of so many frames that a GPU is given in one launch.

    Each launch costs the engine's thread a decision, two marks and a wake-up: as much as a small batch's step takes the
    device. First blocks are solved in one go: only an underrun that is near goes before them.
    """
    most = max(constants.MAX_FRAME_STEPS // max(num_frames, 1), 1)
    return most if is_first else min(most, constants.STEPS_FOR_LISTENERS)
