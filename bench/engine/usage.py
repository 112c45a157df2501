"""Usage of a scenario beside the time of its listeners: the bench's own loop, GPU memory, time by stage."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Self

import torch

from voicegate.bench.engine.driver import Driver
from voicegate.clients.bench.stats import summary

_TICK_S: Final = 0.010
_GIB: Final = 2**30
_CALL_COUNTERS: Final = ("steps", "batches", "calls")


def stage_report(before: Mapping[str, float], after: Mapping[str, float], wall_s: float) -> dict[str, Any]:
    """Differences by stage, with what follows from them; what did not move is left out."""
    moved = {name: value - before.get(name, 0.0) for name, value in after.items() if value != before.get(name, 0.0)}
    stages: dict[str, dict[str, float]] = {}
    for name, value in moved.items():
        stage, _, counter = name.rpartition("_")
        stages.setdefault(stage, {})[counter] = value
    return {stage: _with_quotients(counters, wall_s) for stage, counters in stages.items()}


def _with_quotients(counters: Mapping[str, float], wall_s: float) -> dict[str, Any]:
    report: dict[str, Any] = {name: round(value, 4) for name, value in counters.items()}
    num_calls = next((counters[name] for name in _CALL_COUNTERS if name in counters), None)
    if num_calls:
        report["per_s"] = round(num_calls / wall_s, 2)
        for name, unit, scale in (("rows", "rows", 1), ("seconds", "ms", 1000), ("launches", "launches", 1)):
            if name in counters:
                report[f"{unit}_per_call"] = round(scale * counters[name] / num_calls, 4)
    if "seconds" in counters:
        report["share_of_time"] = round(counters["seconds"] / wall_s, 4)
    return report


def gpu_memory() -> dict[str, float] | None:
    """GiB; None without a CUDA device. `used` counts other processes and what CUDA itself takes."""
    if not torch.cuda.is_available():
        return None
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated": round(torch.cuda.memory_allocated() / _GIB, 3),
        "peak_allocated": round(torch.cuda.max_memory_allocated() / _GIB, 3),
        "reserved": round(torch.cuda.memory_reserved() / _GIB, 3),
        "used": round((total - free) / _GIB, 3),
        "total": round(total / _GIB, 3),
    }


class UsageMeter:
    """`async with UsageMeter(driver) as meter:`; `begin` opens the window that `report` closes."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lags_ms: list[float] = []
        self.begin()

    async def __aenter__(self) -> Self:
        self._watch = asyncio.create_task(self._watch_loop())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watch.cancel()
        with suppress(asyncio.CancelledError):
            await self._watch

    def begin(self) -> None:
        self._lags_ms.clear()
        self._began_s = time.monotonic()
        self._began_cpu_s = time.thread_time()
        self._began_packets = self._driver.num_packets
        self._began_events = self._driver.num_events
        self._began_counters = dict(self._driver.engine.stats().counters)
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()

    def report(self) -> dict[str, Any]:
        """`audio_s_per_s`: what the engine delivered, whoever listened. `lag`: how late the loop's timers fire."""
        wall_s = time.monotonic() - self._began_s
        num_packets = self._driver.num_packets - self._began_packets
        counters = self._driver.engine.stats().counters
        return {
            "wall_s": round(wall_s, 3),
            "audio_s_per_s": round(num_packets * self._driver.speech.audio.frame_ms / 1000 / wall_s, 2),
            "bench_loop": {
                "lag_ms": summary(self._lags_ms),
                "cpu_share": round((time.thread_time() - self._began_cpu_s) / wall_s, 3),
                "events_per_s": round((self._driver.num_events - self._began_events) / wall_s, 1),
                "packets_per_s": round(num_packets / wall_s, 1),
            },
            "stages": stage_report(self._began_counters, counters, wall_s),
            "gpu_memory_gib": gpu_memory(),
        }

    async def _watch_loop(self) -> None:
        while True:
            started_s = time.monotonic()
            await asyncio.sleep(_TICK_S)
            self._lags_ms.append(max(time.monotonic() - started_s - _TICK_S, 0.0) * 1000)
