"""Where a part of a model has no other backend, who names one is refused by that name."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support.golden import TINY_MODEL_DIR
from tests.support.tiny_engine import CONFIG
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.stages import VoiceRoom
from voicegate.engine.device.lanes import HOST_LANE
from voicegate.engine.interface import EngineError
from voicegate.engine.load.devices import Device
from voicegate.engine.load.progress import SILENT
from voicegate.engine.load.startup import ModelStart
from voicegate.engine.load.token2wav import load_flow, load_vocoder
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.model_json import load_model_config

CPU = Device(torch.device("cpu"), HOST_LANE, HOST_LANE)


def start_vocoder(config: EngineConfig, model: ModelConfig) -> Any:
    return load_vocoder(config, model, CPU, start=ModelStart(CPU.device, SILENT))


def start_flow(config: EngineConfig, model: ModelConfig) -> Any:
    return load_flow(config, model, CPU, room=VoiceRoom((10,)), start=ModelStart(CPU.device, SILENT))


@pytest.mark.parametrize(("part", "start"), [("vocoder", start_vocoder), ("flow", start_flow)])
@pytest.mark.parametrize("backend", ["cuda", "tensorrt"])
def test_a_cpu_has_neither(part: str, start: Callable[[EngineConfig, ModelConfig], Any], backend: str) -> None:
    config = replace(CONFIG, max_active_clauses=1)
    model = load_model_config(TINY_MODEL_DIR)
    with pytest.raises(EngineError, match=f"--{part}-backend {backend} needs a GPU; on a CPU use auto"):
        start(replace(config, **{f"{part}_backend": backend}), model)
    assert start(config, model).graphs.num_buckets == 0
