"""Tells the engine's thread when the GPU has reached something, so that it can wait for that and for commands at once.

CUDA has no way to wait for an event and a queue together: a thread a lane waits for the lane's marks, in order.
"""

import threading
import time
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
        """When the mark is reached. Called from one thread; marks of a lane in the order in which it reaches them.

        For one that is reached already nobody is woken: whoever launches work looks once more before it sleeps.
        """


class _NoWaker:
    def wake(self) -> None:
        pass

    def watch(self, mark: Mark) -> None:
        pass


NO_WAKER: Final = _NoWaker()  # where nobody sleeps, or who does waits for the work itself


class Watcher:
    """A Waker. Its threads start with the first mark of a lane; an engine on a CPU never has one."""

    def __init__(self, wake: Callable[[], object]) -> None:
        """`wake` is called from any thread."""
        self._wake = wake
        self._queues: dict[object, SimpleQueue[Mark | None]] = {}
        self._threads: list[threading.Thread] = []

    def wake(self) -> None:
        self._wake()

    def watch(self, mark: Mark) -> None:
        if mark.is_reached:
            return
        queue = self._queues.get(mark.lane)
        if queue is None:
            queue = self._queues[mark.lane] = SimpleQueue()
            thread = threading.Thread(target=self._wait, args=(queue,), name="gpu-watcher", daemon=True)
            self._threads.append(thread)
            thread.start()
        queue.put(mark)

    def close(self) -> None:
        """A thread whose device hangs is left to wait for it."""
        for queue in self._queues.values():
            queue.put(None)
        until_s = time.monotonic() + _CLOSING_S
        for thread in self._threads:
            thread.join(max(until_s - time.monotonic(), 0.0))
        if num_left := sum(thread.is_alive() for thread in self._threads):
            log.error("watchers_left", num_threads=num_left)

    def _wait(self, queue: "SimpleQueue[Mark | None]") -> None:
        while (mark := queue.get()) is not None:
            try:
                mark.wait()
            except RuntimeError:  # the device failed: the engine's thread meets the same error and says so
                log.exception("watching_failed")
            self._wake()
