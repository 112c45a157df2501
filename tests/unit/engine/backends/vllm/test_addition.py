"""A start with vLLM: its share of the GPU leaves the flow its room, and what does not fit is refused before it runs."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.golden import TINY_MODEL_DIR
from tests.support.tensorrt_llm.tiny import babble
from tests.support.tiny_engine import CONFIG
from tests.support.vllm.standin import Behaviour, Standin, installed
from voicegate.bench.full_size.source import Sizes, model_config
from voicegate.engine.backends.vllm import addition
from voicegate.engine.backends.vllm.addition import ADDITION
from voicegate.engine.backends.vllm.config import gpu_bytes
from voicegate.engine.config import EngineConfig, Gpu
from voicegate.engine.device.lanes import HOST_LANE
from voicegate.engine.interface import EngineError
from voicegate.engine.llm.backend import LlmBackend
from voicegate.engine.load.devices import Device
from voicegate.engine.load.llm import load_llm
from voicegate.engine.load.progress import SILENT
from voicegate.engine.load.startup import ModelStart
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.qwen2 import MergedVocabulary, qwen2_sizes

MODEL = load_model_config(TINY_MODEL_DIR)
GPU = Device(torch.device("cuda", 0), HOST_LANE, HOST_LANE)
GIB = 1 << 30


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Standin]:
    monkeypatch.setattr(addition, "gpu_of", lambda _: Gpu(140 * GIB, 132))
    with installed(Behaviour(babble)) as made:
        yield made


@pytest.fixture
def config(tmp_path: Path) -> EngineConfig:
    vocabulary = MergedVocabulary(MODEL.llm, MODEL.llm.vocab_size)
    merged = {**qwen2_sizes(MODEL.llm), "vocab_size": vocabulary.num_rows, "eos_token_id": vocabulary.eos_id}
    (tmp_path / "config.json").write_text(json.dumps(merged))
    return replace(CONFIG, llm_backend="vllm", merged_hf_dir=tmp_path, max_active_clauses=5)


def load(config: EngineConfig, device: Device = GPU) -> LlmBackend:
    return load_llm(config, MODEL, device, num_prompt_tokens=100, start=ModelStart(device.device, SILENT))


def test_settings_reach_it(standin: Standin, config: EngineConfig) -> None:
    options = ("sampling=nucleus", "gpu-memory-utilization=0.4", "reuse=false")
    load(replace(config, is_eager=True, llm_options=options)).close()
    arguments = standin.llms[-1].arguments
    assert (arguments["model"], arguments["max_num_seqs"]) == (str(config.merged_hf_dir), 5)
    assert (arguments["gpu_memory_utilization"], arguments["enable_prefix_caching"]) == (0.4, False)
    assert (arguments["enforce_eager"], arguments["logits_processors"]) == (True, None)


def test_its_share_is_what_its_slots_need(standin: Standin, config: EngineConfig) -> None:
    load(config).close()
    share = standin.llms[-1].arguments["gpu_memory_utilization"]
    assert 3 / 140 < share < 4 / 140
    released = model_config(Sizes())
    vocabulary = MergedVocabulary(released.llm, 151_936)
    needed = gpu_bytes(released.llm, vocabulary, num_slots=448, max_positions=1_300)
    assert 3 * GIB + 1.2e9 < needed < 14 * GIB, "weights of 0.6e9 numbers, and 12 KiB a position"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"merged_hf_dir": None}, "--llm-backend vllm needs --merged-hf-dir DIR"),
        ({"precision": "float32"}, "the merged checkpoint is bfloat16"),
        ({"llm_options": ("gpu-memory-utilization=1.5",)}, "gpu-memory-utilization is '1.5'; it must be a number betw"),
        ({"llm_options": ("worker=true",)}, "--llm-backend vllm has gpu-memory-utilization, reuse, sampling"),
        ({"max_active_clauses": 10_000_000}, r"vLLM would take .* GiB, which is more than the GPU has"),
    ],
)
def test_what_it_is_not_given(standin: Standin, config: EngineConfig, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        load(replace(config, **changes))
    assert not standin.llms


def test_a_version_that_is_not_known_and_one_that_is(standin: Standin, config: EngineConfig) -> None:
    assert ADDITION.check(config, MODEL, GPU.device) == f"0.26.0, {config.merged_hf_dir}"
    standin.behaviour.version = "0.31.1"
    with pytest.raises(EngineError, match=r"vllm 0\.31\.1 is installed; this engine knows 0\.26\.x"):
        ADDITION.check(config, MODEL, GPU.device)


def test_without_the_package_or_a_gpu(config: EngineConfig) -> None:
    with pytest.raises(EngineError, match=r"vllm is not installed: pip install 'voicegate-tts\[vllm\]'"):
        load(config)
    with pytest.raises(EngineError, match="--llm-backend vllm needs a GPU"):
        load(config, Device(torch.device("cpu"), HOST_LANE, HOST_LANE))
    with pytest.raises(EngineError, match="vLLM runs on the first GPU, not on cuda:1: use llm_device cuda:0"):
        load(config, Device(torch.device("cuda", 1), HOST_LANE, HOST_LANE))


def test_a_checkpoint_that_it_cannot_load(standin: Standin, config: EngineConfig) -> None:
    with pytest.raises(EngineError, match=f"vLLM cannot load {config.merged_hf_dir}: no room for a cache"):
        load(replace(config, max_active_clauses=0))
