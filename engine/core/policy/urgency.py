"""Whose turn it is: one order for the scheduler, for who waits for room in the models, and for whose text is read.

First audio before all else, in the order in which the texts came; then the listeners by what they have left to play.
But a listener about to run dry goes before newcomers, until these have waited long themselves: a late start is better
than a gap, and nobody waits for ever. Listeners who have plenty left are served clause by clause, oldest first: a
clause holds memory until it is finished, and to let all of them creep on together would hold the most of it.
Pure: the time is an argument.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from voicegate.engine.flow.batch_size import BatchSize

# Urgency's classes, in their order.
PRESSING, NEWCOMER, LISTENER, CALM = range(4)

# By class, then by time; the key decides between equals.
Rank = tuple[int, float, int]


class StreamView(NamedTuple):
    """What the scheduler may know of one utterance. A tuple: thousands are made a second."""

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
    awaits_samples: bool = False  # of a block, of which all is launched


@dataclass(frozen=True, slots=True)
class Limits:
    """Fixed for an engine."""

    # What a batch of blocks may hold: a whole block at least.
    # Higher -> more throughput; lower -> less waiting for company.
    flow_batch: BatchSize
    # The same where all listeners have plenty left, so that none is to wait soon for a batch that takes long.
    calm_flow_batch: BatchSize | None = None  # None: as flow_batch
    # A listener with less than this to play overtakes newcomers: about two blocks' time, where many have work.
    # Higher -> fewer underruns under load; lower -> sooner first audio under load.
    guard_s: float = 0.15
    # The same where few have work: a block takes a fourth of the time there, and what the first block of a whole text
    # is heard for is hardly more than that guard (docs/adr/0007).
    light_guard_s: float = 0.15
    # The same while his next clause waits for room: until somebody else's clause ends, and then for a first block.
    # Higher -> fewer underruns where slots are few and slow; lower -> newcomers are begun sooner.
    room_guard_s: float = 1.0
    patience_s: float = 1.0  # a newcomer who has waited for so long is overtaken no more
    # A listener with more than this, and than the guard, can wait: several blocks' time.
    # Higher -> clauses hold memory longer, newcomers wait for more of others' blocks; lower -> less reserve.
    comfort_s: float = 1.0
    # Prompts that one LLM step reads. Higher -> a burst of newcomers is through sooner; lower -> nobody's next token
    # waits long for it.
    max_prefills: int = 8
    is_concurrent: bool = False  # the device runs an LLM step and an Euler step side by side
    is_llm_apart: bool = False  # so do two devices, and neither slows the other down


def due_at_s(view: StreamView) -> float:
    """When its next work is allowed: a running batch and a first audio at once, the rest within the lead."""
    if view.deadline_s is None or view.batch is not None or view.max_lead_s == math.inf:
        return -math.inf
    return view.deadline_s - view.max_lead_s


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
    if view.begun_s is not None and now_s < _calm_until_s(view, limits):
        return (CALM, view.begun_s, view.key)
    turn_s = view.waiting_since_s if view.deadline_s is None else view.deadline_s
    if pressing_at_s(view, limits) <= now_s:
        return (PRESSING, turn_s, view.key)
    return (NEWCOMER if view.deadline_s is None else LISTENER, turn_s, view.key)


def urgency_changes_at_s(view: StreamView, now_s: float, limits: Limits) -> float:
    """When it is of another class than now, if nothing happens to it; infinite: never."""
    calm_until_s, presses_s = _calm_until_s(view, limits), pressing_at_s(view, limits)
    return min(calm_until_s if calm_until_s > now_s else math.inf, presses_s if presses_s > now_s else math.inf)


def _calm_until_s(view: StreamView, limits: Limits) -> float:
    return -math.inf if view.deadline_s is None else view.deadline_s - max(limits.comfort_s, limits.guard_s)
