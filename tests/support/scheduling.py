"""The scheduler asked about views at a moment, as the roster asks it about what it keeps."""

from collections.abc import Iterable
from dataclasses import replace

from voicegate.engine.core.policy import Decision, Due, Intake, Limits, StreamView, due_at_s, urgency
from voicegate.engine.core.policy import decide as decide_due


def decide(views: Iterable[StreamView], now_s: float, limits: Limits, intake: Intake | None = None) -> Decision:
    """`wake_at_s`: when more is due, where nothing is."""
    due, later_s = Due(), list[float]()
    for view in views:
        if not (view.wants_llm or view.block_frames or view.batch is not None):
            continue
        if due_at_s(view) <= now_s:
            due.put(view, urgency(view, now_s, limits))
        else:
            later_s.append(due_at_s(view))
    decision = decide_due(due, limits, intake or Intake())
    return decision if due else replace(decision, wake_at_s=min(later_s, default=None))
