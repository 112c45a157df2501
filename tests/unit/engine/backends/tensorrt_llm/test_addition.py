"""A start with TensorRT-LLM: settings reach it, and what it does not know is refused before it is imported."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.golden import TINY_MODEL_DIR
from tests.support.tensorrt_llm.standin import Standin, installed
from tests.support.tensorrt_llm.tiny import babbling
from tests.support.tiny_engine import CONFIG
from voicegate.engine.backends.tensorrt_llm.addition import ADDITION
from voicegate.engine.config import EngineConfig
from voicegate.engine.device.lanes import HOST_LANE
from voicegate.engine.interface import EngineError
from voicegate.engine.llm.backend import LlmBackend
from voicegate.engine.load.devices import Device
from voicegate.engine.load.llm import llm_positions, load_llm
from voicegate.engine.load.progress import SILENT
from voicegate.engine.load.startup import ModelStart
from voicegate.engine.model.config import ModelConfig, PenaltySamplingConfig
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.qwen2 import MergedVocabulary, qwen2_sizes
from voicegate.engine.model.upstream_kinds import COSYVOICE2_STEPAUDIO2

MODEL = load_model_config(TINY_MODEL_DIR)
GPU = Device(torch.device("cuda", 0), HOST_LANE, HOST_LANE)
CPU = Device(torch.device("cpu"), HOST_LANE, HOST_LANE)


def load(config: EngineConfig, device: Device) -> LlmBackend:
    start = ModelStart(device.device, SILENT)
    return load_llm(config, MODEL, device, num_prompt_tokens=100, start=start)


def test_a_cpu_does_not_have_it() -> None:
    with pytest.raises(EngineError, match="--llm-backend tensorrt-llm needs a GPU"):
        load(replace(CONFIG, llm_backend="tensorrt-llm"), CPU)


@pytest.mark.parametrize(
    "model",
    [
        replace(MODEL, sampling=PenaltySamplingConfig()),
        replace(MODEL, family=COSYVOICE2_STEPAUDIO2),
    ],
)
def test_tensorrt_llm_is_refused_for_what_it_does_not_know(model: ModelConfig) -> None:
    config = replace(CONFIG, llm_backend="tensorrt-llm")
    with pytest.raises(EngineError, match="use another backend"):
        load_llm(config, model, GPU, num_prompt_tokens=100, start=ModelStart(GPU.device, SILENT))


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Standin]:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    with installed(babbling()) as made:
        yield made


@pytest.fixture
def config(tmp_path: Path) -> EngineConfig:
    vocabulary = MergedVocabulary(MODEL.llm, MODEL.llm.vocab_size)
    merged = {**qwen2_sizes(MODEL.llm), "vocab_size": vocabulary.num_rows, "eos_token_id": vocabulary.eos_id}
    (tmp_path / "config.json").write_text(json.dumps(merged))
    return replace(CONFIG, llm_backend="tensorrt-llm", merged_hf_dir=tmp_path, max_active_clauses=5)


def test_settings_reach_tensorrt_llm(standin: Standin, config: EngineConfig) -> None:
    chosen = replace(
        config,
        is_eager=True,
        llm_options=(
            "worker=true",
            "sampling=repetition-aware",
            "stream-interval=3",
            "overlap=false",
            "reuse=false",
        ),
    )
    llm = load(chosen, GPU)
    settings, is_single_process = standin.llms[-1].settings, standin.llms[-1].is_single_process
    llm.close()
    assert not is_single_process
    assert settings["model"] == str(config.merged_hf_dir)
    assert settings["max_seq_len"] == llm_positions(config, MODEL, 100)
    assert (settings["max_batch_size"], settings["stream_interval"]) == (5, 3)
    assert (settings["cuda_graph_config"], settings["sampler_type"]) == (None, "TorchSampler")
    assert settings["disable_overlap_scheduler"]
    assert not settings["kv_cache_config"].enable_block_reuse


def test_defaults_of_tensorrt_llm(standin: Standin, config: EngineConfig) -> None:
    llm = load(config, GPU)
    settings, is_single_process = standin.llms[-1].settings, standin.llms[-1].is_single_process
    llm.close()
    assert is_single_process
    assert (settings["stream_interval"], settings["sampler_type"]) == (2, "TRTLLMSampler")
    assert llm.num_free_slots == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"merged_hf_dir": None}, "needs --merged-hf-dir DIR"),
        ({"precision": "float32"}, "the merged checkpoint is bfloat16"),
    ],
)
def test_what_tensorrt_llm_is_not_given(
    standin: Standin, config: EngineConfig, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineError, match=message):
        load(replace(config, **changes), GPU)
    assert not standin.llms


def test_a_gpu_that_is_not_the_first(standin: Standin, config: EngineConfig) -> None:
    with pytest.raises(EngineError, match="runs on the first GPU, not on cuda:1: use llm_device cuda:0"):
        load(config, Device(torch.device("cuda", 1), HOST_LANE, HOST_LANE))
    assert not standin.llms


def test_a_checkpoint_that_it_cannot_load(standin: Standin, config: EngineConfig) -> None:
    with pytest.raises(EngineError, match=f"TensorRT-LLM cannot load {config.merged_hf_dir}"):
        load(replace(config, max_active_clauses=0), GPU)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("stream-interval=0", "stream-interval is '0'; it must be a whole number from 1 on"),
        ("stream-interval=two", "stream-interval is 'two'; it must be a whole number from 1 on"),
        ("worker=yes", "worker is 'yes'; it must be true or false"),
        ("sampling=greedy", "sampling is 'greedy'; it must be nvidia or repetition-aware"),
        ("speed=2", "'speed=2'; --llm-backend tensorrt-llm has overlap, reuse, sampling, stream-interval, worker"),
        ("worker", "'worker'; --llm-backend tensorrt-llm has overlap, reuse, sampling, stream-interval, worker"),
    ],
)
def test_an_option_that_is_none(standin: Standin, config: EngineConfig, option: str, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        load(replace(config, llm_options=(option,)), GPU)
    with pytest.raises(EngineError, match=message):
        ADDITION.check(replace(config, llm_options=(option,)), MODEL, GPU.device)
    assert not standin.llms


def test_a_backend_without_options_is_given_none() -> None:
    with pytest.raises(ValueError, match="llm_options is set, and llm_backend cuda has none"):
        replace(CONFIG, llm_backend="cuda", llm_options=("worker=true",))
