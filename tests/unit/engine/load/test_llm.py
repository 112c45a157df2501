"""Which backend runs the speech LLM, with which settings; none is left running where the rest cannot be loaded."""

from dataclasses import replace

import pytest
import torch

from tests.support.golden import TINY_MODEL_DIR
from tests.support.tiny_engine import CONFIG
from voicegate.engine.config import EngineConfig
from voicegate.engine.device.lanes import HOST_LANE
from voicegate.engine.interface import EngineError
from voicegate.engine.llm.backend import LlmBackend
from voicegate.engine.llm.torch.runner import TorchLlmRunner
from voicegate.engine.load import build
from voicegate.engine.load.devices import Device
from voicegate.engine.load.llm import load_llm
from voicegate.engine.load.progress import SILENT
from voicegate.engine.load.startup import ModelStart
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.store import load_voices

MODEL = load_model_config(TINY_MODEL_DIR)
GPU = Device(torch.device("cuda", 0), HOST_LANE, HOST_LANE)
CPU = Device(torch.device("cpu"), HOST_LANE, HOST_LANE)


def load(config: EngineConfig, device: Device) -> LlmBackend:
    start = ModelStart(device.device, SILENT)
    return load_llm(config, MODEL, device, num_prompt_tokens=100, start=start)


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_a_cpu_runs_torchs_operations(backend: str) -> None:
    llm = load(replace(CONFIG, llm_backend=backend, max_active_clauses=1), CPU)
    assert isinstance(llm, TorchLlmRunner)


@pytest.mark.parametrize(
    ("backend", "message"),
    [("cuda", "--llm-backend cuda needs a GPU")],
)
def test_a_cpu_has_neither_of_the_others(backend: str, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        load(replace(CONFIG, llm_backend=backend), CPU)


def test_an_llm_is_closed_where_the_other_models_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have threads and processes."""
    closed: list[bool] = []

    class Closing:
        def close(self) -> None:
            closed.append(True)

    def fail(*_: object, **__: object) -> None:
        raise ValueError("no room for the flow")

    monkeypatch.setattr(build, "load_llm", lambda *_, **__: Closing())
    monkeypatch.setattr(build, "load_flow", fail)
    with pytest.raises(ValueError, match="no room for the flow"):
        build.load_stages(CONFIG, MODEL, load_voices(TINY_MODEL_DIR, MODEL))
    assert closed == [True]
