"""Turns of those who have more to read than others can wait for: together they have so much of each loop cycle."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

# Time of a series of turns, before the loop does something else. A turn under way is not interrupted.
_TURN_S: Final = 0.001


class Turns:
    def __init__(self) -> None:
        self._waiting: deque[Callable[[float], bool]] = deque()
        self._is_running = False

    def join(self, read: Callable[[float], bool]) -> None:
        """`read` is told when its turn is over, in the loop's time, and called until it says that it has no more."""
        self._waiting.append(read)
        self._run_soon()

    def _run_soon(self) -> None:
        if self._waiting and not self._is_running:
            self._is_running = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_running = False
        loop = asyncio.get_running_loop()
        over_s = loop.time() + _TURN_S
        try:
            while self._waiting:
                read = self._waiting.popleft()
                if read(over_s):
                    self._waiting.append(read)
                if loop.time() >= over_s:
                    break
        finally:  # whoever fails does not keep others from their turns
            self._run_soon()
