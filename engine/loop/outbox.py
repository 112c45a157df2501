"""Events on their way out of the engine's threads, to the event loop: what comes together wakes it once."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from voicegate.engine.interface import EngineEvent


class Outbox:
    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[list[EngineEvent]], None]) -> None:
        """`take` is called in the loop, in the order of `put`."""
        self._loop = loop
        self._take = take
        self._waiting: deque[list[EngineEvent]] = deque()
        self._is_called = False

    def put(self, events: list[EngineEvent]) -> None:
        """From any thread; returns at once. Where the loop is gone nobody is left to tell."""
        self._waiting.append(events)
        if not self._is_called:  # two who find it so call twice, which does no harm
            self._is_called = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        self._is_called = False  # before looking: what is put from here on is seen, or calls anew
        while self._waiting:
            self._take(self._waiting.popleft())
