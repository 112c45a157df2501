"""Tells the engine's thread when the GPU has reached something, so that it can wait for that and for commands at once.

CUDA has no way to wait for an event and a queue together: a thread a lane waits for the lane's marks, in order.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue

import structlog

from voicegate.engine.device.lanes import Mark

log = structlog.get_logger()

Watch = Callable[[Mark], None]


class Watcher:
    """Threads start with the first mark of a lane; an engine on a CPU never has one."""

    def __init__(self, notify: Callable[[], object]) -> None:
        """`notify` is called from the watcher's threads, once for every mark."""
        self._notify = notify
        self._queues: dict[object, SimpleQueue[Mark | None]] = {}
        self._threads: list[threading.Thread] = []

    def watch(self, mark: Mark) -> None:
        """Called from one thread; marks of a lane in the order in which it reaches them."""
        queue = self._queues.get(mark.lane)
        if queue is None:
            queue = self._queues[mark.lane] = SimpleQueue()
            thread = threading.Thread(target=self._wait, args=(queue,), name="gpu-watcher", daemon=True)
            self._threads.append(thread)
            thread.start()
        queue.put(mark)

    def close(self) -> None:
        for queue in self._queues.values():
            queue.put(None)
        for thread in self._threads:
            thread.join()

    def _wait(self, queue: "SimpleQueue[Mark | None]") -> None:
        while (mark := queue.get()) is not None:
            try:
                mark.wait()
            except RuntimeError:  # the device failed: the engine's thread meets the same error and says so
                log.exception("watching_failed")
            self._notify()
