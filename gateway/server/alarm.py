"""One call at a time on the event loop, which may be moved and called off."""

import asyncio
from collections.abc import Callable


class Alarm:
    """It may ring early by the grain of the loop's clock: who is rung looks at the time, and sets it again.

    It knows whom to ring only while it is set: they would keep each other in memory.
    """

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._due_s: float | None = None

    @property
    def is_set(self) -> bool:
        return self._timer is not None

    def set(self, due_s: float | None, ring: Callable[[], None]) -> None:
        """In place of what was set before; None: it does not ring."""
        if due_s == self._due_s:
            return
        self.call_off()
        if due_s is not None:
            self._due_s = due_s
            self._timer = asyncio.get_running_loop().call_at(due_s, self._go_off, ring)

    def call_off(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._due_s = None

    def _go_off(self, ring: Callable[[], None]) -> None:
        self._timer = self._due_s = None
        ring()
