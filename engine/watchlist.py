"""Which utterances to look at: those for which something has happened, and those whose moment has come. Pure.

With hundreds of streams most have enough audio ahead or wait for text; a step costs what the few others cost.
"""

import heapq


class WatchList:
    """Keys that are awake, and one alarm at most for each key. Whoever looks at a key sets its next alarm."""

    def __init__(self) -> None:
        self.awake: set[int] = set()
        self._alarms: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []  # what `_alarms` does not confirm is stale

    @property
    def next_alarm_s(self) -> float | None:
        while self._heap and self._alarms.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def set_alarm(self, key: int, alarm_s: float) -> None:
        """Wake the key then; an earlier alarm stands."""
        if alarm_s < self._alarms.get(key, float("inf")):
            self._alarms[key] = alarm_s
            heapq.heappush(self._heap, (alarm_s, key))

    def ring(self, now_s: float) -> list[int]:
        """The keys whose alarm has come: awake from now on, without an alarm."""
        rung = []
        while (next_s := self.next_alarm_s) is not None and next_s <= now_s:
            _, key = heapq.heappop(self._heap)
            del self._alarms[key]
            self.awake.add(key)
            rung.append(key)
        return rung

    def forget(self, key: int) -> None:
        self.awake.discard(key)
        self._alarms.pop(key, None)
