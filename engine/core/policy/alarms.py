"""Who is to be looked at again, and when, if nothing happens before. Pure: times come in."""

import heapq
import math


class Alarms:
    """A moment a key at most."""

    def __init__(self) -> None:
        self._moments_s: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []  # what `_moments_s` does not confirm is out of date

    def set(self, key: int, moment_s: float) -> None:
        """In place of the one before; infinite: none."""
        if self._moments_s.get(key, math.inf) == moment_s:
            return
        self._moments_s.pop(key, None)
        if moment_s < math.inf:
            self._moments_s[key] = moment_s
            heapq.heappush(self._heap, (moment_s, key))

    @property
    def next_s(self) -> float | None:
        while self._heap and self._moments_s.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def ring(self, now_s: float) -> list[int]:
        """The keys whose moment has come; they have none any more."""
        rung = []
        while (next_s := self.next_s) is not None and next_s <= now_s:
            _, key = heapq.heappop(self._heap)
            del self._moments_s[key]
            rung.append(key)
        return rung
