"""CosyVoice3's flow and vocoder on a GPU: our kernels, where nothing takes their place."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.golden import TINY_MODEL_DIR
from tests.support.tiny_engine import CONFIG
from voicegate.engine import additions
from voicegate.engine.config import EngineConfig, Gpu
from voicegate.engine.device.lanes import HOST_LANE
from voicegate.engine.interface import EngineError
from voicegate.engine.load import cosyvoice3
from voicegate.engine.load.devices import Device
from voicegate.engine.load.progress import SILENT
from voicegate.engine.load.startup import ModelStart
from voicegate.engine.model.model_json import load_model_config

MODEL = load_model_config(TINY_MODEL_DIR)


class GpuInName(Device):
    """A device that counts as a GPU, where all the rest is the CPU's."""

    is_cuda = True  # type: ignore[assignment]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setattr(cosyvoice3, "gpu_of", lambda _: Gpu(80 << 30, 132))
    return GpuInName(torch.device("cpu"), HOST_LANE, HOST_LANE)


@pytest.fixture
def config(tmp_path: Path) -> EngineConfig:
    """Few streams, eager, and no engines of anybody's."""
    small = replace(CONFIG, device="auto", max_active_clauses=1, is_eager=True, tensorrt_dir=tmp_path)
    return replace(small, precision="float32", vocoder_precision="float32", kv_dtype="float32")


@pytest.mark.parametrize("backend", ["auto", "cuda"])
def test_our_kernels_run_where_nothing_takes_their_place(device: Device, config: EngineConfig, backend: str) -> None:
    chosen = replace(config, vocoder_backend=backend, flow_backend=backend)
    family, start = cosyvoice3.CosyVoice3(), ModelStart(torch.device("cpu"), SILENT)
    assert family.load_vocoder(chosen, MODEL, device, start=start).name == "cuda"
    assert family.load_flow(chosen, MODEL, device, num_blocks=lambda: 4, start=start).name == "cuda"


def test_a_backend_that_is_named_and_not_installed_is_told(
    device: Device, config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(additions, "is_installed", lambda _: False)
    named: dict[str, Any] = {"vocoder_backend": "tensorrt", "flow_backend": "tensorrt"}
    family, start = cosyvoice3.CosyVoice3(), ModelStart(torch.device("cpu"), SILENT)
    missing = "tensorrt is not part of this installation: engine/backends/tensorrt is missing"
    with pytest.raises(EngineError, match=missing):
        family.load_vocoder(replace(config, **named), MODEL, device, start=start)
    with pytest.raises(EngineError, match=missing):
        family.load_flow(replace(config, **named), MODEL, device, num_blocks=lambda: 4, start=start)
    assert family.load_flow(config, MODEL, device, num_blocks=lambda: 4, start=start).name == "cuda"
