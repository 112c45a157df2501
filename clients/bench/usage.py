"""Usage of a server on this machine while it is measured: CPU by thread and child process, GPU power. Linux alone."""

import asyncio
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_GPU_INTERVAL_MS: Final = 500


def thread_cpu_s(pid: int) -> dict[int, float]:
    """CPU seconds by thread id; empty where there is no such process."""
    seconds: dict[int, float] = {}
    for path in Path(f"/proc/{pid}/task").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            seconds[int(path.parent.name)] = _cpu_s(path.read_text())
    return seconds


def children(pid: int) -> list[int]:
    """Processes that this one started, and those that they did."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("[0-9]*/children"):
        with suppress(OSError):
            found += map(int, path.read_text().split())
    return [*found, *(below for child in found for below in children(child))]


def _cpu_s(stat: str) -> float:
    # Behind the name, which may hold blanks and brackets: state is field 3, user and system ticks are 14 and 15.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


@dataclass(frozen=True, slots=True)
class CpuSample:
    at_s: float
    threads_s: dict[int, float]
    children_s: dict[int, dict[int, float]]  # by process and thread


def sample_cpu(pid: int) -> CpuSample:
    children_s = {child: thread_cpu_s(child) for child in children(pid)}
    return CpuSample(time.monotonic(), thread_cpu_s(pid), children_s)


def cpu_report(pid: int, before: CpuSample, after: CpuSample) -> dict[str, Any]:
    """Cores kept busy. The event loop's thread is the process's first.

    The engine's is the busiest of the others, wherever it runs: here, or in a process of its own.
    """
    wall_s = after.at_s - before.at_s
    threads = _shares(before.threads_s, after.threads_s, wall_s)
    loop = threads.pop(pid, 0.0)
    processes = {
        child: _shares(before.children_s.get(child, {}), threads_s, wall_s)
        for child, threads_s in after.children_s.items()
    }
    others = [*threads.values(), *(share for shares in processes.values() for share in shares.values())]
    return {
        "event_loop": round(loop, 3),
        "busiest_other_thread": round(max(others), 3) if others else None,
        "other_threads": round(sum(threads.values()), 3),
        "child_processes": round(sum(sum(shares.values()) for shares in processes.values()), 3),
        "num_child_processes": len(processes),
        "window_s": round(wall_s, 1),
    }


def _shares(before_s: dict[int, float], after_s: dict[int, float], wall_s: float) -> dict[int, float]:
    return {thread: (cpu_s - before_s.get(thread, 0.0)) / wall_s for thread, cpu_s in after_s.items()}


@dataclass(slots=True)
class GpuMeter:
    """Power and utilisation of a GPU, the mean of all that may be used; nothing where there is no nvidia-smi."""

    samples: list[tuple[float, float, float]] = field(default_factory=list)  # when, watts, per cent
    _process: asyncio.subprocess.Process | None = None
    _reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "GpuMeter":
        command = shutil.which("nvidia-smi")
        if command is not None:
            query = ["--query-gpu=power.draw,utilization.gpu", "--format=csv,noheader,nounits"]
            if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):  # nvidia-smi itself looks at all of the machine
                query.append(f"--id={visible}")
            self._process = await asyncio.create_subprocess_exec(
                command, *query, f"--loop-ms={_GPU_INTERVAL_MS}", stdout=asyncio.subprocess.PIPE
            )
            self._reading = asyncio.create_task(self._read(self._process))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None and self._reading is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            await self._reading

    def report(self, begin_s: float, end_s: float) -> dict[str, Any] | None:
        inside = [(watts, share) for at_s, watts, share in self.samples if begin_s <= at_s <= end_s]
        if not inside:
            return None
        return {
            "power_w": round(sum(watts for watts, _ in inside) / len(inside), 1),
            "utilisation_percent": round(sum(share for _, share in inside) / len(inside), 1),
        }

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            with suppress(ValueError):  # what a driver writes where it does not know
                watts, share = map(float, line.decode().split(","))
                self.samples.append((time.monotonic(), watts, share))
