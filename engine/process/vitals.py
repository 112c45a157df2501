"""Whether an engine process hangs. Pure: looks are counted, not seconds, which pass while all of us are stopped too."""

from typing import Final

# Of a process that loads: Python's lock may be held for long while weights come from a cold disk.
START_PATIENCE_LOOKS: Final = 600


class Vitals:
    """Told of every state that the process tells, and looked at twice a second."""

    def __init__(self, patience_looks: int) -> None:
        self._patience_looks = patience_looks
        self._has_started = False
        self._pulse: int | None = None
        self._silent_looks = 0  # it has told nothing
        self._stuck_looks = 0  # it has work, and tells that nothing of it gets done

    def start(self) -> None:
        """It is ready."""
        self._has_started = True

    def hear(self, pulse: int | None) -> None:
        self._silent_looks = 0
        if pulse is None or pulse != self._pulse:
            self._pulse, self._stuck_looks = pulse, 0

    def look(self) -> str | None:
        """What is wrong with it; None: nothing yet."""
        self._silent_looks += 1
        self._stuck_looks += self._pulse is not None
        patience = self._patience_looks if self._has_started else START_PATIENCE_LOOKS
        if self._silent_looks > patience:
            return "it does not answer"
        if self._stuck_looks > patience:
            return "it gets nothing done"
        return None
