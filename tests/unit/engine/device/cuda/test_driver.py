"""What is asked of the driver, by a stand-in: there is no GPU here."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("cuda.bindings.driver")

from voicegate.engine.device.cuda import driver

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("answer", "expected"), [(("ok", 1), True), (("ok", 0), False), (("unknown attribute", 0), False)]
)
def test_who_shares_a_gpu_by_mps_is_asked_of_the_driver(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[str, int], *, expected: bool
) -> None:
    attribute_type = driver.driver.CUdevice_attribute
    fine = SimpleNamespace(value=0)
    asked = []

    def attribute_of(attribute: object, device: object) -> tuple[str, int]:
        asked.append((attribute, device))
        return answer

    stand_in = SimpleNamespace(
        CUdevice_attribute=attribute_type,
        CUresult=SimpleNamespace(CUDA_SUCCESS="ok"),
        cuDeviceGet=lambda index: (fine, f"device {index}"),
        cuDeviceGetAttribute=attribute_of,
    )
    monkeypatch.setattr(driver, "driver", stand_in)
    assert driver.is_shared(torch.device("cuda:1")) is expected
    assert asked == [(attribute_type.CU_DEVICE_ATTRIBUTE_MPS_ENABLED, "device 1")]


class Arguments(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int64),)


@pytest.mark.parametrize("is_pdl", [False, True])
def test_a_launch_as_it_was_asked_for(monkeypatch: pytest.MonkeyPatch, *, is_pdl: bool) -> None:
    seen = []

    def launch(config: Any, function: object, parameters: int, extra: int) -> tuple[SimpleNamespace]:
        pointer = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_void_p))[0]
        seen.append((config, function, Arguments.from_address(pointer).number, extra))
        return (SimpleNamespace(value=0),)

    monkeypatch.setattr(driver.driver, "cuLaunchKernelEx", launch)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=77))
    driver.Launch("function", (2, 3, 4), num_threads=96, shared_memory_bytes=1_000, is_pdl=is_pdl)(Arguments(5))
    [(config, function, number, extra)] = seen
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (2, 3, 4)
    assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (96, 1, 1)
    assert (config.sharedMemBytes, int(config.hStream)) == (1_000, 77)
    assert (function, number, extra) == ("function", 5, 0)
    overlap = driver.driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    assert config.numAttrs == is_pdl
    assert [(each.id, each.value.programmaticStreamSerializationAllowed) for each in config.attrs] == [
        (overlap, 1)
    ] * is_pdl


def test_what_the_driver_refuses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = driver.driver.CUresult.CUDA_ERROR_INVALID_VALUE
    monkeypatch.setattr(driver.driver, "cuLaunchKernelEx", lambda *_: (refused,))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))
    launch = driver.Launch("function", (1, 1, 1), num_threads=32, shared_memory_bytes=0, is_pdl=True)
    with pytest.raises(RuntimeError, match="CUDA_ERROR_INVALID_VALUE"):
        launch(Arguments(1))
