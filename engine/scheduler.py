"""Which work next: a pure function of what the live utterances need and of the time. No torch, no clock.

Order: utterances that have not been heard yet, oldest first; then whoever's listener runs dry soonest.
Work is one LLM step of a batch or one Euler step of a batch of blocks, so a cancel or a newcomer waits milliseconds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamView:
    """What the scheduler may know of one utterance."""

    key: int
    waiting_since_s: float  # its first speakable text came
    deadline_s: float | None  # its listener runs dry; None while nothing has been sent
    max_lead_s: float  # further ahead of its listener than this, it waits
    wants_llm: bool  # an LLM step is possible and useful
    has_block: bool  # a flow block is complete and not being solved
    batch: int | None = None  # the running flow batch that solves its block


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


Work = LlmStep | BeginBlocks | AdvanceBatch


@dataclass(frozen=True, slots=True)
class Decision:
    """`wake_at_s`: when nothing is due, the moment at which something will be; None if only an event can help."""

    work: Work | None
    wake_at_s: float | None = None


def urgency(view: StreamView) -> tuple[int, float, int]:
    """Sort key, most urgent first. Unheard utterances come before all others (architecture, section 6)."""
    if view.deadline_s is None:
        return (0, view.waiting_since_s, view.key)
    return (1, view.deadline_s, view.key)


def decide(views: Sequence[StreamView], now_s: float, *, max_flow_batch: int) -> Decision:
    """The one piece of work to do now. Equal inputs give equal decisions."""
    workable = [view for view in views if view.wants_llm or view.has_block or view.batch is not None]
    due = sorted((view for view in workable if _due_at_s(view) <= now_s), key=urgency)
    if not due:
        return Decision(None, wake_at_s=min(map(_due_at_s, workable), default=None))
    first = due[0]
    if first.batch is not None:
        return Decision(AdvanceBatch(first.batch))
    if first.has_block:
        return Decision(BeginBlocks(_flow_companions(first, due, max_flow_batch)))
    return Decision(LlmStep(tuple(view.key for view in due if view.wants_llm)))


def _due_at_s(view: StreamView) -> float:
    """When its next work is allowed: a running batch and a first audio at once, the rest within the lead."""
    if view.deadline_s is None or view.batch is not None:
        return -math.inf
    return view.deadline_s - view.max_lead_s


def _flow_companions(first: StreamView, due: Sequence[StreamView], max_flow_batch: int) -> tuple[int, ...]:
    """Ready blocks solved along with the most urgent one. Nobody's first audio waits for the company of old ones."""
    is_unheard = first.deadline_s is None
    ready = [view.key for view in due if view.has_block and (view.deadline_s is None) == is_unheard]
    return tuple(ready[:max_flow_batch])
