"""As many threads for an operation on a CPU as there are cores that nobody else computes on.

torch parts an operation among its threads and waits for all of them, by looking (engine/__init__.py). One that has to
share its core with a neighbour keeps the others waiting at each of some thousand operations a second; with a thread
less there is nobody to wait for. What others take is what the kernel counts of our cores (proc(5), /proc/stat) less
what this process has taken. Where there is no such count, as outside Linux, there are no neighbours either.
"""

import os
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, NamedTuple

import torch

_STAT: Final = Path("/proc/stat")
# Between two looks. Higher -> a neighbour that comes is felt for longer; lower -> the kernel's ticks, of 10 ms, count
# for more, and cores are taken for busy that are not.
_LOOK_S: Final = 0.25
# Of a core: who takes less of it is no neighbour. Higher -> threads wait for each other beside small ones; lower ->
# what is left of the ticks costs a thread.
_LITTLE: Final = 0.3
# Columns of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal; guests' are in user and nice.
_IDLE_COLUMNS: Final = (3, 4)
_NUM_COLUMNS: Final = 8


def usable_cores() -> Collection[int]:
    """Of this process: under taskset fewer than there are."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


def num_usable_cores() -> int:
    return len(usable_cores())


class CoreTimes(NamedTuple):
    """In seconds, each since some moment of its own."""

    at_s: float
    busy_s: float  # of our cores together, whoever it was
    own_s: float  # of this process, all threads


def core_times(stat: str, cores: Collection[int], *, ticks_per_s: int, at_s: float, own_s: float) -> CoreTimes:
    """`stat`: /proc/stat's text. Cores that it does not have are idle."""
    names = {f"cpu{core}" for core in cores}
    num_ticks = 0
    for line in stat.splitlines():
        name, *numbers = line.split()
        if name in names:
            ticks = list(map(int, numbers[:_NUM_COLUMNS]))
            num_ticks += sum(ticks) - sum(ticks[column] for column in _IDLE_COLUMNS)
    return CoreTimes(at_s, num_ticks / ticks_per_s, own_s)


def num_free_cores(before: CoreTimes, now: CoreTimes, num_cores: int) -> int:
    """At least 1: our own."""
    others = (now.busy_s - before.busy_s - (now.own_s - before.own_s)) / (now.at_s - before.at_s)
    return max(int(num_cores - max(others, 0.0) + _LITTLE), 1)


def read_core_times() -> CoreTimes | None:
    """Of the cores that this process may use. None: nobody counts them here."""
    try:
        stat, ticks_per_s = _STAT.read_text(), os.sysconf("SC_CLK_TCK")
    except OSError:
        return None
    own_s = time.process_time()
    return core_times(stat, usable_cores(), ticks_per_s=ticks_per_s, at_s=time.monotonic(), own_s=own_s)


class SharedCores:
    """For one thread, of whose operations it says how many threads they have."""

    def __init__(
        self,
        num_cores: int,
        *,
        read: Callable[[], CoreTimes | None] = read_core_times,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
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
