"""An event loop that stays awake for a moment, because what it waits for is about to come: it need not wake up then.

That takes a core, so only where there are some to spare. Not for an engine's own process, whose other threads would
wait for Python's lock.
"""

import asyncio
from typing import Final

# From a lone text to its first sound on a GPU, and half as much again. Lower -> slower GPUs gain nothing; higher -> a
# core is busy for nothing where text is still being written, or the engine has other things to do.
_LONGEST_S: Final = 0.03
# Beside the engine's thread, its event loop and its encoders.
_MIN_CORES: Final = 4


class Vigil:
    def __init__(self, *, num_cores: int) -> None:
        """`num_cores`: that this process and the engine's may use."""
        self._has_cores = num_cores >= _MIN_CORES
        self._until_s = 0.0
        self.is_kept = False

    def begin(self) -> None:
        """From an event loop, until `end` or for _LONGEST_S."""
        if self._has_cores:
            self._until_s = asyncio.get_running_loop().time() + _LONGEST_S
            if not self.is_kept:
                self._look()

    def end(self) -> None:
        self._until_s = 0.0

    def _look(self) -> None:
        """With something to call a loop looks for news, and does not wait for it."""
        loop = asyncio.get_running_loop()
        self.is_kept = loop.time() < self._until_s
        if self.is_kept:
            loop.call_soon(self._look)
