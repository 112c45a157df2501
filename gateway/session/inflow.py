"""How much one socket may send: an allowance that is used up by what comes and grows again with time.

Pure: time is an argument. Nothing is refused for it; the shell reads no further until there is allowance again.
"""

from typing import Final

# Worth of time that may come at once. Lower slows clients that send a whole text in small parts; higher lets a
# flood keep the event loop busy for longer before it is slowed.
_BURST_S: Final = 2.0
# A message counts as one for every KiB that it begins: a large one costs time too.
_BYTES_PER_UNIT: Final = 1024


class Inflow:
    def __init__(self, messages_per_s: float, *, patience_s: float) -> None:
        self._messages_per_s = messages_per_s
        self._patience_s = patience_s
        self._full_at_s = 0.0  # when the allowance is whole again, if nothing more comes
        self._over_since_s: float | None = None
        self.num_excesses = 0  # times that it came to the end of its allowance, after quiet times

    def take(self, num_frames: int, num_bytes: int, now_s: float) -> float:
        """Takes a read message. Returns the seconds until more may be read."""
        rest_s = max(0.0, self._full_at_s - now_s)
        if rest_s <= _BURST_S / 2:
            self._over_since_s = None
        rest_s += max(num_frames, num_bytes / _BYTES_PER_UNIT) / self._messages_per_s
        self._full_at_s = now_s + rest_s
        wait_s = max(0.0, rest_s - _BURST_S)
        if wait_s and self._over_since_s is None:
            self._over_since_s = now_s
            self.num_excesses += 1
        return wait_s

    def is_flood(self, now_s: float) -> bool:
        """Over its allowance for longer than anybody has patience."""
        return self._over_since_s is not None and now_s >= self._over_since_s + self._patience_s
