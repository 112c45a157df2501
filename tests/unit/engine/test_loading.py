"""Choosing a device, and what a GPU is asked for before anything is loaded onto it."""

import sys
from dataclasses import replace

import pytest
import torch

from engine.interface import EngineError
from engine.loading import choose_device, least_gpu_bytes, open_device
from engine.model_config import load_model_config
from tests.support.golden import TINY_MODEL_DIR
from tests.support.tiny_engine import CONFIG

pytestmark = pytest.mark.unit


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
    with pytest.raises(EngineError, match=r"pip install 'voicegate\[gpu\]'"):
        open_device("auto")
    assert not open_device("cpu").is_cuda


def test_memory_wanted_of_a_gpu_follows_the_configuration() -> None:
    model = load_model_config(TINY_MODEL_DIR)
    config = replace(CONFIG, max_active_clauses=8)
    wanted = least_gpu_bytes(config, model)
    assert least_gpu_bytes(replace(config, max_active_clauses=16), model) > wanted
    assert least_gpu_bytes(replace(config, kv_dtype="float8"), model) < wanted
    assert least_gpu_bytes(replace(config, precision="float32"), model) > wanted
