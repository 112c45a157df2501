"""Whether a peer for whom bytes wait takes any of them. Pure: time and counts are arguments."""

from typing import Final

# Share of the limit between two looks: a peer that took something is dropped at most so much before the limit, and
# never after it. Lower looks more often.
_LOOK_FRACTION: Final = 1 / 20


class StallWatch:
    """From `begin`, when something waits, until nothing does."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._num_taken_bytes = 0
        self._last_progress_s = 0.0
        self._last_look_s = 0.0

    def begin(self, now_s: float, num_taken_bytes: int) -> None:
        """`num_taken_bytes` counts what the peer took, from any origin; that it changes is what matters."""
        self._num_taken_bytes = num_taken_bytes
        self._last_progress_s = self._last_look_s = now_s

    @property
    def next_look_s(self) -> float:
        return min(self._last_progress_s + self._limit_s, self._last_look_s + self._limit_s * _LOOK_FRACTION)

    def look(self, now_s: float, num_taken_bytes: int) -> bool:
        """True: it took nothing for as long as the limit."""
        if num_taken_bytes != self._num_taken_bytes:
            self._num_taken_bytes = num_taken_bytes
            self._last_progress_s = self._last_look_s  # as far as one can know
        self._last_look_s = now_s
        return now_s >= self._last_progress_s + self._limit_s
