"""The kernel compiles for a Hopper, by the real NVRTC, where no GPU is."""

import re
from pathlib import Path
from typing import Any, cast

import pytest
import torch

pytest.importorskip("cuda.bindings.nvrtc")

from voicegate.engine.device.cuda import nvrtc
from voicegate.engine.device.cuda.nvrtc import KernelNotCompiled, compile_kernel
from voicegate.engine.llm.cuda.resident import step
from voicegate.engine.llm.cuda.resident.arguments import KERNEL, Buffers
from voicegate.engine.llm.cuda.resident.step import DeviceShared, ResidentStep

pytestmark = pytest.mark.unit

SIZES: dict[str, int | str] = {
    "HIDDEN": 896,
    "INNER": 4864,
    "LAYERS": 24,
    "QKV_ROWS": 1152,
    "OUT_ROWS": 896,
    "GATE_UP_ROWS": 9728,
    "SPLITS": 4,
    "KV_HEADS": 2,
    "HEAD_DIM": 64,
    "DECODE_KEYS": 128,
    "MAX_KEYS": 512,
    "MAX_POSITIONS": 2048,
    "SQUARES_STRIDE": 1152,
    "SCALE": "0.18033688f",
    "HEAD_PROGRAM": 56,
}


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def test_it_compiles_for_a_hopper_once(monkeypatch: pytest.MonkeyPatch) -> None:
    code = compile_kernel(KERNEL, SIZES, capability=(9, 0))
    assert code.startswith(b"\x7fELF")
    assert b"decode_step" in code

    def compile_again(*_: object) -> bytes:
        raise AssertionError("it was kept")

    monkeypatch.setattr(nvrtc, "_compile", compile_again)
    assert compile_kernel(KERNEL, SIZES, capability=(9, 0)) == code
    with pytest.raises(AssertionError, match="it was kept"):
        compile_kernel(KERNEL, {**SIZES, "LAYERS": 25}, capability=(9, 0))


@pytest.mark.parametrize(("name", "value"), [("MAX_KEYS", 640), ("SCALE", "no_number")])
def test_what_does_not_compile_says_why(name: str, value: int | str) -> None:
    with pytest.raises(KernelNotCompiled, match=re.compile(r"does not compile: .*error", re.DOTALL)):
        compile_kernel(KERNEL, {**SIZES, name: value}, capability=(9, 0))


def test_on_a_shared_gpu_there_is_no_such_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "is_shared", lambda _: True)
    none = cast(Any, None)
    buffers = Buffers(none, torch.zeros(1), none, none, none, none)
    with pytest.raises(DeviceShared, match="shared by MPS"):
        ResidentStep(none, none, none, buffers, scale=1.0)
