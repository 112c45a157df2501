"""Usage of a server while it is measured: here the GPUs, by an nvidia-smi of ours."""

import time
from pathlib import Path

import pytest

from voicegate.clients.bench.usage import GpuMeter

# Two GPUs, of which the second is at work.
_NVIDIA_SMI = """#!/bin/sh
case "$*" in *--id=1*) ;; *) echo "100.0, 0" ;; esac
echo "500.0, 90"
"""


@pytest.mark.parametrize(("visible", "power_w"), [("", 300.0), ("1", 500.0)])
async def test_only_gpus_that_may_be_used_count(
    visible: str, power_w: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "nvidia-smi"
    command.write_text(_NVIDIA_SMI)
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    begin_s = time.monotonic()
    async with GpuMeter() as meter:
        assert meter._reading is not None
        await meter._reading  # this one ends by itself
    report = meter.report(begin_s, time.monotonic())
    assert report is not None
    assert report["power_w"] == power_w


async def test_a_machine_without_nvidias_tools_has_nothing_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    async with GpuMeter() as meter:
        pass
    assert meter.report(0.0, time.monotonic()) is None
