"""The engine's share of the gateway's settings. No torch."""

import dataclasses

from voicegate.engine.config import EngineConfig
from voicegate.gateway.config import GatewayConfig, listed
from voicegate.gateway.config_fields import ConfigError


def engine_config(config: GatewayConfig) -> EngineConfig:
    """Unset settings stay the engine's own defaults. Raises ConfigError for settings that do not go together."""
    try:
        return _engine_config(config)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _engine_config(config: GatewayConfig) -> EngineConfig:
    chosen = EngineConfig(
        model_dir=config.found_model_dir(),
        device=config.device,
        llm_device=config.llm_device,
        token2wav_devices=listed(config.token2wav_devices),
        device_patience_s=config.engine_timeout_s,
        threads=config.threads,
        lead_ms=config.lead_ms,
        stall_ms=config.stall_ms,
        max_text_chars=config.context_text_bytes,
        voices_dir=config.voices_dir,
        precision=config.precision,
        kv_dtype=config.kv_dtype,
        flow_products=config.flow_products,
        vocoder_precision=config.vocoder_precision,
        flow_context=config.flow_context,
        vocoder_backend=config.vocoder_backend,
        flow_backend=config.flow_backend,
        tensorrt_dir=config.tensorrt_dir,
        is_eager=config.eager,
        llm_backend=config.llm_backend,
        merged_hf_dir=config.merged_hf_dir,
        llm_options=listed(config.llm_options),
    )
    numbers = ("max_utterances", "max_active_clauses", "max_flow_batch", "encoder_processes")
    rooms = {name: getattr(config, name) for name in numbers}
    return dataclasses.replace(chosen, **{name: room for name, room in rooms.items() if room is not None})
