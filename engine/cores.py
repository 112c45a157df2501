"""The cores that this process may use: how many, and who computes on them, as Linux counts it. No torch."""

import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

_STAT: Final = Path("/proc/stat")
_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")  # of version 2, in a container its own
# Columns of a core's line: user, nice, system, idle, iowait, irq, softirq, steal; guests' are in user and nice.
_IDLE_COLUMNS: Final = (3, 4)
_NUM_COLUMNS: Final = 8


def usable_cores() -> Collection[int]:
    """Under taskset fewer than there are."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


def num_usable_cores() -> int:
    """So many at once: as many as there are, or as a control group's quota is worth, which more threads would burn."""
    num_cores = len(usable_cores())
    quota = quota_cores(_QUOTA.read_text()) if _QUOTA.exists() else None
    return num_cores if quota is None else max(min(int(quota), num_cores), 1)


def quota_cores(cpu_max: str) -> float | None:
    """Cores of a control group's cpu.max, "QUOTA PERIOD"; None: it has no limit."""
    quota, _, period = cpu_max.strip().partition(" ")
    return None if quota == "max" else int(quota) / int(period)


class CoreTimes(NamedTuple):
    """In seconds, each since some moment of its own."""

    at_s: float
    busy_s: float  # of some cores together, whoever it was
    own_s: float  # of this process, all threads

    def others_since(self, before: "CoreTimes") -> float:
        """How many of those cores others have taken since then, in the mean."""
        others_s = self.busy_s - before.busy_s - (self.own_s - before.own_s)
        return max(others_s, 0.0) / (self.at_s - before.at_s)


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


def read_core_times() -> CoreTimes | None:
    """Times of the cores that this process may use. None: they are not counted here."""
    try:
        stat, ticks_per_s = _STAT.read_text(), os.sysconf("SC_CLK_TCK")
    except OSError:
        return None
    own_s = time.process_time()
    return core_times(stat, usable_cores(), ticks_per_s=ticks_per_s, at_s=time.monotonic(), own_s=own_s)
