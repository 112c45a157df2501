"""The gateway's settings reach the engine; what is unset stays the engine's default."""

from dataclasses import replace
from pathlib import Path

import pytest

from voicegate.engine.config import (
    DEVICES,
    FLOW_CONTEXTS,
    FLOW_PRODUCTS,
    KV_DTYPES,
    LLM_BACKENDS,
    PRECISIONS,
    TOKEN2WAV_BACKENDS,
    VOCODER_PRECISIONS,
    EngineConfig,
)
from voicegate.engine.flow.cuda.config import FlowCudaConfig
from voicegate.engine.llm.cuda.config import LINE_BUCKETS
from voicegate.gateway.cli.engine_settings import engine_config
from voicegate.gateway.config import GatewayConfig, config_fields
from voicegate.gateway.config_fields import ConfigError


def test_settings_of_the_engine() -> None:
    config = GatewayConfig(model_dir=Path("m"), device="cpu", threads=3, max_utterances=7, lead_ms=900, stall_ms=0)
    chosen = engine_config(config)
    assert chosen == EngineConfig(Path("m"), device="cpu", threads=3, max_utterances=7, lead_ms=900, stall_ms=0)
    assert GatewayConfig().stall_ms == EngineConfig(Path("m")).stall_ms
    unset = engine_config(replace(config, max_utterances=None, threads=None))
    assert (unset.max_utterances, unset.threads) == (EngineConfig(Path("m")).max_utterances, None)


def test_devices_of_a_disaggregated_engine() -> None:
    config = GatewayConfig(model_dir=Path("m"), llm_device="cuda:0", token2wav_devices="cuda:1, cuda:2")
    chosen = engine_config(config)
    assert (chosen.llm_device, chosen.token2wav_devices) == ("cuda:0", ("cuda:1", "cuda:2"))
    with pytest.raises(ConfigError, match="they go together"):
        engine_config(replace(config, llm_device=None))


def test_settings_of_a_gpu() -> None:
    config = GatewayConfig(
        model_dir=Path("m"),
        precision="float32",
        kv_dtype="float8",
        flow_products="float8",
        vocoder_precision="tf32",
        flow_context="trimmed",
        vocoder_backend="tensorrt",
        flow_backend="cuda",
        tensorrt_dir=Path("engines"),
        eager=True,
        llm_backend="tensorrt-llm",
        merged_hf_dir=Path("hf"),
        llm_options="worker=true, sampling=repetition-aware",
        max_active_clauses=5,
        max_flow_batch=3,
        encoder_processes=0,
    )
    assert engine_config(config) == EngineConfig(
        Path("m"),
        precision="float32",
        kv_dtype="float8",
        flow_products="float8",
        vocoder_precision="tf32",
        flow_context="trimmed",
        vocoder_backend="tensorrt",
        flow_backend="cuda",
        tensorrt_dir=Path("engines"),
        is_eager=True,
        llm_backend="tensorrt-llm",
        merged_hf_dir=Path("hf"),
        llm_options=("worker=true", "sampling=repetition-aware"),
        max_active_clauses=5,
        max_flow_batch=3,
        encoder_processes=0,
    )
    assert engine_config(GatewayConfig(model_dir=Path("m"))) == EngineConfig(Path("m"))


def test_choices_and_limits_are_the_engines() -> None:
    choices = {field.name: field.choices for field in config_fields()}
    assert choices["device"] == DEVICES
    assert choices["precision"] == PRECISIONS
    assert choices["kv_dtype"] == KV_DTYPES
    assert choices["flow_products"] == FLOW_PRODUCTS
    assert choices["flow_context"] == FLOW_CONTEXTS
    assert choices["vocoder_precision"] == VOCODER_PRECISIONS
    assert choices["vocoder_backend"] == choices["flow_backend"] == TOKEN2WAV_BACKENDS
    assert choices["llm_backend"] == LLM_BACKENDS
    for name, limit in (("max_active_clauses", LINE_BUCKETS[-1]), ("max_flow_batch", FlowCudaConfig().max_batch)):
        assert getattr(GatewayConfig(**{name: limit}), name) == limit
        with pytest.raises(ConfigError, match=f"{name} is {limit + 1}"):
            GatewayConfig(**{name: limit + 1})
