"""When the next engine process is started where one was lost: at once after a long life, else later and later. Pure.

By the same one is asked again for a voice that it had no room for: there it never lived.
"""

from typing import Final

# A process that lived for shorter is followed later than the one before. Lower -> one that dies at certain utterances
# takes more of them with it; higher -> what was mended long ago still counts.
_LONG_LIFE_S: Final = 60.0
_MAX_DELAY_S: Final = 30.0


class Backoff:
    def __init__(self) -> None:
        self._delay_s = 0.0

    def delay_s(self, life_s: float) -> float:
        """Of a process that served for so long; 0: it never did."""
        if life_s >= _LONG_LIFE_S:
            self._delay_s = 0.0
        delay_s, self._delay_s = self._delay_s, min(max(2 * self._delay_s, 1.0), _MAX_DELAY_S)
        return delay_s
