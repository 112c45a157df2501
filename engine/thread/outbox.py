"""Events on their way out of the engine's threads, to the event loop: what comes together wakes it once."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from voicegate.engine.interface import AudioReady, EngineEvent

# For a first packet a thread waits so long for the loop to have it: it needs Python's lock, and else gets it when the
# thread happens to give it away, 0.4 ms later where one text is alone. A loop that is at other work does not come
# sooner for being waited for.
_RIGHT_OF_WAY_S: Final = 0.0003


class Outbox:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        take: Callable[[list[EngineEvent]], None],
        *,
        right_of_way_s: float = _RIGHT_OF_WAY_S,
    ) -> None:
        """`take` is called in the loop, in the order of `put`."""
        self._loop = loop
        self._take = take
        self._right_of_way_s = right_of_way_s
        self._waiting: deque[list[EngineEvent]] = deque()
        self._is_called = False
        self._is_waited_for = False  # once each time that it is called: a burst of new requests is no longer held up
        self._comes = threading.Condition()
        self._thread: int | None = None  # the loop's

    def put(self, events: list[EngineEvent]) -> None:
        """From any thread; returns at once, but for a first packet. Where the loop is gone nobody is left to tell."""
        self._waiting.append(events)
        if not self._is_called:  # two who find it so call twice, which does no harm
            self._is_called = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._hand_over)
        if any(isinstance(event, AudioReady) and event.pts_48k == 0 for event in events):
            self._wait()

    def _wait(self) -> None:
        with self._comes:
            if self._waiting and not self._is_waited_for and threading.get_ident() != self._thread:
                self._is_waited_for = True
                self._comes.wait(self._right_of_way_s)

    def _hand_over(self) -> None:
        self._is_called = False  # before looking: what is put from here on is seen, or calls anew
        self._thread = threading.get_ident()
        while self._waiting:
            self._take(self._waiting.popleft())
        with self._comes:
            self._is_waited_for = False
            self._comes.notify_all()
