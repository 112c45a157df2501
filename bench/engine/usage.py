"""Time of an engine's stages over a scenario, and GPU memory."""

from collections.abc import Mapping
from typing import Any, Final

import torch

_GIB: Final = 2**30
_CALL_COUNTERS: Final = ("steps", "batches", "calls")


def stage_report(
    before: Mapping[str, float], after: Mapping[str, float], *, wall_s: float, audio_s: float
) -> dict[str, Any]:
    """Differences by stage, with what follows from them; what did not move is left out."""
    moved = {name: value - before.get(name, 0.0) for name, value in after.items() if value != before.get(name, 0.0)}
    stages: dict[str, dict[str, float]] = {}
    for name, value in moved.items():
        stage, _, counter = name.rpartition("_")
        stages.setdefault(stage, {})[counter] = value
    return {stage: _with_quotients(counters, wall_s, audio_s) for stage, counters in stages.items()}


def _with_quotients(counters: Mapping[str, float], wall_s: float, audio_s: float) -> dict[str, Any]:
    report: dict[str, Any] = {name: round(value, 4) for name, value in counters.items()}
    num_calls = next((counters[name] for name in _CALL_COUNTERS if name in counters), None)
    if num_calls:
        report["per_s"] = round(num_calls / wall_s, 2)
        for name, unit, scale in (("rows", "rows", 1), ("seconds", "ms", 1000), ("launches", "launches", 1)):
            if name in counters:
                report[f"{unit}_per_call"] = round(scale * counters[name] / num_calls, 4)
    if "seconds" in counters:
        report["share_of_time"] = round(counters["seconds"] / wall_s, 4)
        if audio_s:
            report["rtf"] = round(counters["seconds"] / audio_s, 4)
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
