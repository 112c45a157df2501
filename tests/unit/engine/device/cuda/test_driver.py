"""What is asked of the driver, by a stand-in: there is no GPU here."""

from types import SimpleNamespace

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
