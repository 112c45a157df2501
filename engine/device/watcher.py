"""Tells the engine's thread when the GPU has reached something, so that it can wait for that and for commands at once.

CUDA has no way to wait for an event and a queue together: while the engine's thread sleeps, and only then, a thread a
lane waits for the earliest mark that the lane has not reached (docs/adr/0010).
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Protocol

import structlog

from voicegate.engine.device.lanes import Mark

log = structlog.get_logger()

# For what was launched last to be reached: some milliseconds. Higher -> the end of an engine waits longer for a GPU
# that hangs.
_CLOSING_S: Final = 2.0


class Waker(Protocol):
    """How what works beside the engine's thread has it look again."""

    def wake(self) -> None:
        """At once. From any thread; does not wait."""

    def watch(self, mark: Mark) -> None:
        """When the mark is reached. Called from the engine's thread; marks of a lane in the order in which it reaches
        them.

        Nobody is woken who is awake: whoever launches work looks once more before it sleeps.
        """


class _NoWaker:
    def wake(self) -> None:
        pass

    def watch(self, mark: Mark) -> None:
        pass


NO_WAKER: Final = _NoWaker()  # where nobody sleeps, or who does waits for the work itself


class Watcher:
    """A Waker. Its threads start with the first mark of a lane; an engine on a CPU never has one.

    All but `wake` is for the thread that sleeps. It calls `arm` behind its last look, sleeps, and calls `disarm`.
    """

    def __init__(self, wake: Callable[[], object]) -> None:
        """`wake` is called from any thread, and ends a sleep that begins behind it, too."""
        self._wake = wake
        self._lanes: dict[object, _WatchedLane] = {}
        self._is_asleep = False

    def wake(self) -> None:
        self._wake()

    def watch(self, mark: Mark) -> None:
        lane = self._lanes.get(mark.lane)
        if lane is None:
            if _is_reached(mark):
                return
            lane = self._lanes[mark.lane] = _WatchedLane(self._wake_sleeper)
        lane.add(mark)

    def arm(self) -> bool:
        """From here on what is reached wakes. False: something was that may not have been looked at; nothing is armed.

        Marks of an earlier sleep that are still waited for are not armed anew.
        """
        self._is_asleep = True  # before it is asked: who ends waiting meanwhile wakes, or has ended before
        if sum(lane.drop_reached() for lane in self._lanes.values()):
            self._is_asleep = False
            return False
        for lane in self._lanes.values():
            lane.arm()
        return True

    def disarm(self) -> None:
        """Disarms: pending marks wake no thread before the next sleep."""
        self._is_asleep = False

    def close(self) -> None:
        """Behind what was launched last. A thread whose device hangs is left to wait for it."""
        for lane in self._lanes.values():
            lane.close()
        until_s = time.monotonic() + _CLOSING_S
        threads = [lane.thread for lane in self._lanes.values()]
        for thread in threads:
            thread.join(max(until_s - time.monotonic(), 0.0))
        if num_left := sum(thread.is_alive() for thread in threads):
            log.error("watchers_left", num_threads=num_left)

    def _wake_sleeper(self) -> None:
        if self._is_asleep:
            self._wake()


class _WatchedLane:
    """A lane's marks, and a thread that waits for one of them at a time."""

    def __init__(self, on_waited: Callable[[], None]) -> None:
        """`on_waited` is called from the thread, whenever it has waited for a mark."""
        self._on_waited = on_waited
        self._ahead: deque[Mark] = deque()  # as many as are in flight
        self._armed: Mark | None = None  # the last of which the thread was told
        self._is_waiting = False  # the thread, for that
        self._orders: SimpleQueue[Mark | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._run, name="gpu-watcher", daemon=True)
        self.thread.start()

    def add(self, mark: Mark) -> None:
        self._ahead.append(mark)
        self.drop_reached()  # here, too: who is busy for long never sleeps

    def drop_reached(self) -> int:
        """How many there were."""
        num_before = len(self._ahead)
        while self._ahead and self._is_over(self._ahead[0]):
            self._ahead.popleft()
        return num_before - len(self._ahead)

    def _is_over(self, mark: Mark) -> bool:
        """Reached, or waited for in vain: the device failed."""
        return (mark is self._armed and not self._is_waiting) or _is_reached(mark)

    def arm(self) -> None:
        """While the thread waits for an earlier mark it is told of no other: it wakes with the end of that.

        Where that end came since the last look it has woken already.
        """
        if self._ahead and not self._is_waiting and self._ahead[0] is not self._armed:
            self._armed, self._is_waiting = self._ahead[0], True
            self._orders.put(self._armed)

    def close(self) -> None:
        if self._ahead and self._ahead[-1] is not self._armed:
            self._orders.put(self._ahead[-1])
        self._orders.put(None)

    def _run(self) -> None:
        while (mark := self._orders.get()) is not None:
            try:
                mark.wait()
            except RuntimeError:  # the device failed: the engine's thread meets the same error and says so
                log.exception("watching_failed")
            self._is_waiting = False  # before it wakes: who does not sleep yet sees it
            self._on_waited()


def _is_reached(mark: Mark) -> bool:
    """Also of a device that failed: whoever looks meets the same error, and says so."""
    try:
        return mark.is_reached
    except RuntimeError:
        return True
