"""Whether an engine, or one of its devices, that has something to do does any of it. Pure: time is an argument."""

from typing import Final

# Between two looks. Lower wakes the loop more often; higher says it of an engine sooner than its limit, by up to two of
# them.
LOOK_S: Final = 0.25


class PulseWatch:
    """Looked at every `look_s`. A longer pause counts as two of these: where nobody could look, nobody could work."""

    def __init__(self, limit_s: float, look_s: float = LOOK_S) -> None:
        self._limit_s = limit_s
        self._look_s = look_s
        self._pulse: int | None = None
        self._unchanged_s = 0.0
        self._last_look_s = 0.0

    def look(self, pulse: int | None, now_s: float) -> bool:
        """True: by the next look it may have stayed the same for longer than the limit.

        `pulse`: a number that changes with all that gets done; None: there is nothing to do.
        A new one may be as old as the last look.
        """
        since_s = min(now_s - self._last_look_s, 2 * self._look_s)
        self._last_look_s = now_s
        if pulse is None or pulse != self._pulse:
            self._pulse, self._unchanged_s = pulse, 0.0
        if pulse is not None:
            self._unchanged_s += since_s
        return self._unchanged_s + self._look_s > self._limit_s
