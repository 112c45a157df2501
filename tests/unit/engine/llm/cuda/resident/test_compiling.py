"""The kernel compiles for a Hopper, by the real NVRTC, where no GPU is."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

pytest.importorskip("cuda.bindings.nvrtc")

from voicegate.engine.llm.cuda.resident import compiling, step
from voicegate.engine.llm.cuda.resident.arguments import Buffers
from voicegate.engine.llm.cuda.resident.compiling import KernelNotCompiled, compile_kernel, is_shared
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
    code = compile_kernel(SIZES, capability=(9, 0))
    assert code.startswith(b"\x7fELF")
    assert b"decode_step" in code

    def compile_again(*_: object) -> bytes:
        raise AssertionError("it was kept")

    monkeypatch.setattr(compiling, "_compile", compile_again)
    assert compile_kernel(SIZES, capability=(9, 0)) == code
    with pytest.raises(AssertionError, match="it was kept"):
        compile_kernel({**SIZES, "LAYERS": 25}, capability=(9, 0))


@pytest.mark.parametrize(("name", "value"), [("MAX_KEYS", 640), ("SCALE", "no_number")])
def test_what_does_not_compile_says_why(name: str, value: int | str) -> None:
    with pytest.raises(KernelNotCompiled, match=re.compile(r"does not compile: .*error", re.DOTALL)):
        compile_kernel({**SIZES, name: value}, capability=(9, 0))


@pytest.mark.parametrize(
    ("answer", "expected"), [(("ok", 1), True), (("ok", 0), False), (("unknown attribute", 0), False)]
)
def test_who_shares_a_gpu_by_mps_is_asked_of_the_driver(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[str, int], *, expected: bool
) -> None:
    fine = SimpleNamespace(value=0)
    asked = []

    def attribute_of(attribute: object, device: object) -> tuple[str, int]:
        asked.append((attribute, device))
        return answer

    driver = SimpleNamespace(
        CUdevice_attribute=compiling.driver.CUdevice_attribute,
        CUresult=SimpleNamespace(CUDA_SUCCESS="ok"),
        cuDeviceGet=lambda index: (fine, f"device {index}"),
        cuDeviceGetAttribute=attribute_of,
    )
    monkeypatch.setattr(compiling, "driver", driver)
    assert is_shared(torch.device("cuda:1")) is expected
    assert asked == [(compiling.driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MPS_ENABLED, "device 1")]


def test_on_a_shared_gpu_there_is_no_such_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "is_shared", lambda _: True)
    none = cast(Any, None)
    buffers = Buffers(none, torch.zeros(1), none, none, none, none)
    with pytest.raises(DeviceShared, match="shared by MPS"):
        ResidentStep(none, none, none, buffers, scale=1.0)
