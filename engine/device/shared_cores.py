"""As many threads for an operation on a CPU as there are cores that nobody else computes on.

torch parts an operation among its threads and waits for all of them, by looking (engine/__init__.py). One that has to
share its core with a neighbour keeps the others waiting at each of some thousand operations a second; with a thread
less there is nobody to wait for. Where nobody counts what cores do, as outside Linux, there are no neighbours either.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

import torch

from voicegate.engine.cores import CoreTimes, read_core_times
from voicegate.engine.device.lanes import HostLane

# Between two looks. Higher -> a neighbour that comes is felt for longer; lower -> the kernel's ticks, of 10 ms, count
# for more, and cores are taken for busy that are not.
_LOOK_S: Final = 0.25
# Share of a core: a process that takes less of it is no neighbour. Higher -> threads wait for each other beside small
# ones; lower -> the rest of the ticks costs a thread.
_LITTLE: Final = 0.3


def num_free_cores(before: CoreTimes, now: CoreTimes, num_cores: int) -> int:
    """At least 1: our own."""
    return max(int(num_cores - now.others_since(before) + _LITTLE), 1)


class SharedCores:
    """For one thread, of whose operations it says how many threads they have."""

    def __init__(
        self,
        num_cores: int,
        *,
        read: Callable[[], CoreTimes | None] = read_core_times,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`num_cores`: that `read` counts; of a quota it knows nothing."""
        self._num_cores = num_cores
        self._read = read
        self._clock = clock
        self._before = read()
        self._most: int | None = None
        self._next_look_s = clock() + _LOOK_S

    def fit_threads(self) -> None:
        """Look, if it is time: the threads that torch had at the first look are the most that it has."""
        now_s = self._clock()
        if self._before is None or now_s < self._next_look_s:
            return
        self._next_look_s = now_s + _LOOK_S
        now = self._read()
        if now is not None:
            self._most = torch.get_num_threads() if self._most is None else self._most
            num_threads = min(num_free_cores(self._before, now, self._num_cores), self._most)
            if num_threads != torch.get_num_threads():
                torch.set_num_threads(num_threads)
            self._before = now


class SharedHostLane(HostLane):
    """A CPU, part of which others may take."""

    def __init__(self, cores: SharedCores) -> None:
        self._cores = cores

    def active(self) -> AbstractContextManager[object]:
        self._cores.fit_threads()
        return super().active()
