"""Time on the device by events, time on the host by the clock; medians."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

import torch

DEVICE: Final = torch.device("cuda")
_NUM_WARM: Final = 3
_NUM_REPLAYS: Final = 20


def device_ms(work: Callable[[], object], *, num_runs: int = 7, calls_per_run: int = 1) -> float:
    """Device time of one call."""
    times: list[float] = []
    for _ in range(num_runs):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(calls_per_run):
            work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / calls_per_run)
    return median(times)


def host_ms(work: Callable[[], Any], *, num_runs: int = 7) -> float:
    """Until a call returns, whatever the device does meanwhile."""
    times: list[float] = []
    for _ in range(num_runs):
        torch.cuda.synchronize()
        started_s = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - started_s))
    return median(times)


def back_to_back_us(graph: torch.cuda.CUDAGraph) -> float:
    """Time of a replay among others that were launched before it ends: none waits for the host."""
    runs = []
    for _ in range(_NUM_REPLAYS + _NUM_WARM):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        graph.replay()
        end.record()
        runs.append((begin, end))
    torch.cuda.synchronize()
    times: list[float] = [begin.elapsed_time(end) for begin, end in runs[_NUM_WARM:]]
    return 1e3 * median(times)
