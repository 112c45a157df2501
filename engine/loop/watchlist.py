"""Which utterances to look at: those for which something has happened, and those whose moment has come. Pure.

With hundreds of streams most have enough audio ahead or wait for text; a step costs what the few others cost.
"""

import heapq
from collections.abc import Callable, Collection

from voicegate.engine.policy.scheduler import StreamView, due_at_s


class WatchList:
    """By key: whether it was touched, what was seen of it last if that was work, and one alarm at most."""

    def __init__(self) -> None:
        self.touched: set[int] = set()  # something has happened since they were looked at
        self._due: dict[int, StreamView] = {}
        self._alarms: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []  # what `_alarms` does not confirm is stale

    @property
    def next_alarm_s(self) -> float | None:
        while self._heap and self._alarms.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def set_alarm(self, key: int, alarm_s: float) -> None:
        """Touch the key then; an earlier alarm stands. Whoever looks at a key sets its next alarm."""
        if alarm_s < self._alarms.get(key, float("inf")):
            self._alarms[key] = alarm_s
            heapq.heappush(self._heap, (alarm_s, key))

    def ring(self, now_s: float) -> list[int]:
        """The keys whose alarm has come: touched from now on, without an alarm."""
        rung = []
        while (next_s := self.next_alarm_s) is not None and next_s <= now_s:
            _, key = heapq.heappop(self._heap)
            del self._alarms[key]
            self.touched.add(key)
            rung.append(key)
        return rung

    def look(self, now_s: float, view_of: Callable[[int], StreamView | None]) -> Collection[StreamView]:
        """All work that is due, having looked at what was touched; what is due later gets an alarm."""
        for key in self.touched:
            view = view_of(key)
            if view is not None and due_at_s(view) <= now_s:
                self._due[key] = view
                continue
            self._due.pop(key, None)
            if view is not None:
                self.set_alarm(key, due_at_s(view))
        self.touched.clear()
        return self._due.values()

    def forget(self, key: int) -> None:
        self.touched.discard(key)
        self._due.pop(key, None)
        self._alarms.pop(key, None)
