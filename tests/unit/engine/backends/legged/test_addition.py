"""A start with either package: settings reach it, and what does not fit is refused before it is imported."""

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
from tests.unit.engine.backends.legged.support import PACKAGES
from voicegate.bench.full_size.source import Sizes, model_config
from voicegate.engine import additions
from voicegate.engine.backends.vllm import addition as vllm_addition
from voicegate.engine.backends.vllm.config import gpu_bytes
from voicegate.engine.config import EngineConfig, Gpu
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
GPU, OTHER_GPU, CPU = (Device(torch.device(name), HOST_LANE, HOST_LANE) for name in ("cuda:0", "cuda:1", "cpu"))
GIB = 1 << 30
BACKENDS = list(PACKAGES)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    """The first of both, where a test does not choose."""
    return str(getattr(request, "param", BACKENDS[0]))


@pytest.fixture
def standin(backend: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(vllm_addition, "gpu_of", lambda _: Gpu(140 * GIB, 132))
    with PACKAGES[backend].standin.installed(PACKAGES[backend].behaviour(babble)) as made:
        yield made


@pytest.fixture
def config(backend: str, tmp_path: Path) -> EngineConfig:
    vocabulary = MergedVocabulary(MODEL.llm, MODEL.llm.vocab_size)
    merged = {**qwen2_sizes(MODEL.llm), "vocab_size": vocabulary.num_rows, "eos_token_id": vocabulary.eos_id}
    (tmp_path / "config.json").write_text(json.dumps(merged))
    return replace(CONFIG, llm_backend=backend, merged_hf_dir=tmp_path, max_active_clauses=5)


def load(config: EngineConfig, device: Device = GPU, *, model: ModelConfig = MODEL) -> LlmBackend:
    return load_llm(config, model, device, num_prompt_tokens=100, start=ModelStart(device.device, SILENT))


both = pytest.mark.parametrize("backend", BACKENDS, indirect=True)


def test_settings_reach_tensorrt_llm(standin: Any, config: EngineConfig) -> None:
    options = ("worker=true", "sampling=repetition-aware", "stream-interval=3", "overlap=false", "reuse=false")
    load(replace(config, is_eager=True, llm_options=options)).close()
    settings, is_single_process = standin.llms[-1].settings, standin.llms[-1].is_single_process
    assert not is_single_process
    assert settings["model"] == str(config.merged_hf_dir)
    assert settings["max_seq_len"] == llm_positions(config, MODEL, 100)
    assert (settings["max_batch_size"], settings["stream_interval"]) == (5, 3)
    assert (settings["cuda_graph_config"], settings["sampler_type"]) == (None, "TorchSampler")
    assert settings["disable_overlap_scheduler"]
    assert not settings["kv_cache_config"].enable_block_reuse
    (llm := load(config)).close()
    settings, is_single_process = standin.llms[-1].settings, standin.llms[-1].is_single_process
    assert is_single_process
    assert (settings["stream_interval"], settings["sampler_type"]) == (2, "TRTLLMSampler")
    assert llm.num_free_slots == 5


@pytest.mark.parametrize("backend", ["vllm"], indirect=True)
def test_settings_reach_vllm_and_its_share_is_what_its_slots_need(standin: Any, config: EngineConfig) -> None:
    options = ("sampling=nucleus", "gpu-memory-utilization=0.4", "reuse=false")
    load(replace(config, is_eager=True, llm_options=options)).close()
    arguments = standin.llms[-1].arguments
    assert (arguments["model"], arguments["max_num_seqs"]) == (str(config.merged_hf_dir), 5)
    assert (arguments["gpu_memory_utilization"], arguments["enable_prefix_caching"]) == (0.4, False)
    assert (arguments["enforce_eager"], arguments["logits_processors"]) == (True, None)
    load(config).close()
    assert 3 / 140 < standin.llms[-1].arguments["gpu_memory_utilization"] < 4 / 140
    released = model_config(Sizes())
    vocabulary = MergedVocabulary(released.llm, 151_936)
    needed = gpu_bytes(released.llm, vocabulary, num_slots=448, max_positions=1_300)
    assert 3 * GIB + 1.2e9 < needed < 14 * GIB, "weights of 0.6e9 numbers, and 12 KiB a position"
    with pytest.raises(EngineError, match=r"vLLM would take .* GiB, which is more than the GPU has"):
        load(replace(config, max_active_clauses=10_000_000))


@pytest.mark.parametrize("backend", ["vllm"], indirect=True)
def test_heads_that_vllm_would_cut_are_refused(standin: Any, config: EngineConfig) -> None:
    model = replace(MODEL, llm=replace(MODEL.llm, head_dim=32))
    vocabulary = MergedVocabulary(model.llm, model.llm.vocab_size)
    merged = {**qwen2_sizes(model.llm), "vocab_size": vocabulary.num_rows, "eos_token_id": vocabulary.eos_id}
    assert config.merged_hf_dir is not None
    (config.merged_hf_dir / "config.json").write_text(json.dumps(merged))
    with pytest.raises(EngineError, match="takes a head of this model as 320 / 5 numbers wide, where it has 32"):
        load(config, model=model)
    assert not standin.llms


@both
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"merged_hf_dir": None}, "needs --merged-hf-dir DIR"),
        ({"precision": "float32"}, "the merged checkpoint is bfloat16"),
        ({"llm_options": ("reuse=yes",)}, "reuse is 'yes'; it must be true or false"),
        ({"llm_options": ("speed=2",)}, "'speed=2'; --llm-backend [a-z-]* has .*reuse, sampling"),
        ({"llm_options": ("reuse",)}, "'reuse'; --llm-backend [a-z-]* has .*reuse, sampling"),
    ],
)
def test_what_it_is_not_given(standin: Any, config: EngineConfig, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        load(replace(config, **changes))
    with pytest.raises(EngineError, match=message):
        additions.load(config.llm_backend, "addition").ADDITION.check(replace(config, **changes), MODEL, GPU.device)
    assert not standin.llms


@pytest.mark.parametrize(
    ("backend", "option", "message"),
    [
        ("tensorrt-llm", "stream-interval=0", "stream-interval is '0'; it must be a whole number from 1 on"),
        ("tensorrt-llm", "stream-interval=two", "stream-interval is 'two'; it must be a whole number from 1 on"),
        ("tensorrt-llm", "sampling=greedy", "sampling is 'greedy'; it must be nvidia or repetition-aware"),
        ("vllm", "gpu-memory-utilization=1.5", "gpu-memory-utilization is '1.5'; it must be a number between 0 and 1"),
        ("vllm", "gpu-memory-utilization=x", "gpu-memory-utilization is 'x'; it must be a number between 0 and 1"),
        ("vllm", "worker=true", "--llm-backend vllm has gpu-memory-utilization, reuse, sampling"),
    ],
    indirect=["backend"],
)
def test_an_option_that_is_none(standin: Any, config: EngineConfig, option: str, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        load(replace(config, llm_options=(option,)))


def test_a_backend_without_options_is_given_none() -> None:
    with pytest.raises(ValueError, match="llm_options is set, and llm_backend cuda has none"):
        replace(CONFIG, llm_backend="cuda", llm_options=("worker=true",))


@both
def test_devices_and_models_that_it_does_not_know(standin: Any, config: EngineConfig) -> None:
    with pytest.raises(EngineError, match=f"--llm-backend {config.llm_backend} needs a GPU"):
        load(config, CPU)
    name = PACKAGES[config.llm_backend].name
    with pytest.raises(EngineError, match=f"{name} runs on the first GPU, not on cuda:1: use llm_device cuda:0"):
        load(config, OTHER_GPU)
    for model in (replace(MODEL, sampling=PenaltySamplingConfig()), replace(MODEL, family=COSYVOICE2_STEPAUDIO2)):
        with pytest.raises(EngineError, match="use another backend"):
            load(config, model=model)
    assert not standin.llms
    with pytest.raises(EngineError, match=f"{name} cannot load {config.merged_hf_dir}: .+"):
        load(replace(config, max_active_clauses=0))


@pytest.mark.parametrize("backend", ["vllm"], indirect=True)
def test_a_version_that_is_not_known_and_one_that_is(standin: Any, config: EngineConfig) -> None:
    """TensorRT-LLM's are in test_requirements.py."""
    check = vllm_addition.ADDITION.check
    assert check(config, MODEL, GPU.device) == f"0.26.0, {config.merged_hf_dir}"
    standin.behaviour.version = "0.31.1"
    with pytest.raises(EngineError, match=r"vllm 0\.31\.1 is installed; this engine knows 0\.26\.x: pip"):
        check(config, MODEL, GPU.device)


@pytest.mark.parametrize("backend", ["vllm"], indirect=True)
def test_without_the_package(config: EngineConfig) -> None:
    with pytest.raises(EngineError, match=r"vllm is not installed: pip install '\.\[vllm\]'"):
        load(config)
