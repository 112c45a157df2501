"""Choosing a device, and what a GPU is asked for before anything is loaded onto it."""

import importlib.util
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from tests.support.golden import TINY_MODEL_DIR
from tests.support.tiny_engine import CONFIG
from voicegate.engine.device.lanes import CudaLane, Lane
from voicegate.engine.interface import EngineError
from voicegate.engine.load.devices import Device, choose_device, open_device


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(EngineError, match="torch sees no CUDA device; use --device cpu"):
        choose_device("cuda")
    with pytest.raises(EngineError, match="use auto, cpu or cuda"):
        choose_device("tpu")


def test_a_gpu_without_triton_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(EngineError, match="pip install triton"):
        open_device(replace(CONFIG, device="auto"))
    assert not open_device(CONFIG).is_cuda


def test_8_bit_products_are_refused_where_they_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(CONFIG, flow_products="float8")
    with pytest.raises(EngineError, match=r"flow_products float8 needs a GPU of compute capability 8\.9"):
        open_device(config)
    for capability, precision, message in (
        ((8, 0), "bfloat16", "needs a GPU of compute capability"),
        ((9, 0), "float32", "needs precision bfloat16, not float32"),
    ):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, has=capability: has)
        with pytest.raises(EngineError, match=message):
            open_device(replace(config, device="cuda", precision=precision))


class FakeStream:
    def __init__(self, device: torch.device, *, priority: int) -> None:
        self.priority = priority

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, -3


def gpu_lanes(monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "Stream", FakeStream)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    return open_device(replace(CONFIG, device="cuda"))


def priority(lane: Lane) -> int:
    assert isinstance(lane, CudaLane)
    return lane.stream.priority


def test_the_llms_short_steps_go_before_the_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    device = gpu_lanes(monkeypatch)
    assert priority(device.llm_lane) < priority(device.token2wav_lane)


def test_a_cpu_needs_neither_triton_nor_anything_of_cuda() -> None:
    """In a process of its own: here other tests have imported both."""
    script = """
import sys
sys.modules["triton"] = None
from tests.support.tiny_engine import CONFIG, tiny_stages
assert not tiny_stages().flow.graphs.num_buckets
print([name for name in sys.modules if name.startswith("voicegate.engine") and ".cuda" in name])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=TINY_MODEL_DIR.parents[1], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr
