"""How much of this machine's cores a gateway would have to itself. Linux tells; elsewhere nothing is known."""

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

_STAT: Final = Path("/proc/stat")
_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
# Long enough to see who computes, short enough not to be waited for.
_LOOK_S: Final = 0.5
# Of all cores; less is what any machine does beside.
_BUSY_SHARE: Final = 0.2


class CpuTimes(NamedTuple):
    """Ticks of all cores since the machine started."""

    idle: int
    total: int

    @staticmethod
    def of(stat: str) -> "CpuTimes":
        """The first line of /proc/stat (proc_stat(5)): user, nice, system, idle, iowait, ..."""
        ticks = [int(word) for word in stat.split("\n", 1)[0].split()[1:9]]
        return CpuTimes(idle=ticks[3] + ticks[4], total=sum(ticks))

    def busy_since(self, before: "CpuTimes") -> float:
        """Share of all cores that computed meanwhile."""
        total = self.total - before.total
        return 1.0 - (self.idle - before.idle) / total if total else 0.0


def quota_cores(cpu_max: str) -> float | None:
    """Of a control group's cpu.max, "QUOTA PERIOD"; None: it has no limit."""
    quota, _, period = cpu_max.strip().partition(" ")
    return None if quota == "max" else int(quota) / int(period)


def shared_cores() -> str | None:
    """What keeps the cores from being the gateway's own, and what to do; None: nothing that can be seen."""
    num_cores = os.cpu_count() or 1
    allowed = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else float(num_cores)
    if _QUOTA.exists():
        allowed = min(allowed, quota_cores(_QUOTA.read_text()) or allowed)
    if allowed < num_cores:
        return f"this process may use {allowed:g} of {num_cores} cores: set threads to {max(int(allowed), 1)}"
    if not _STAT.exists():
        return None
    before = CpuTimes.of(_STAT.read_text())
    time.sleep(_LOOK_S)
    share = CpuTimes.of(_STAT.read_text()).busy_since(before)
    if share < _BUSY_SHARE:
        return None
    return f"others keep {100 * share:.0f} % of {num_cores} cores busy: speech takes longer by as much"
