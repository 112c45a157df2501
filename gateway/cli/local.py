"""The engine and the gateway in this process: the composition root. Imports torch, so commands import it late."""

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import Engine
from voicegate.engine.loading.build import create_engine
from voicegate.engine.loading.progress import SILENT, Progress
from voicegate.gateway.cli.terminal import CommandError
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.run import running_gateway


def engine_config(config: GatewayConfig) -> EngineConfig:
    """The engine's share of the settings; what is unset stays the engine's own default."""
    chosen = EngineConfig(
        model_dir=config.found_model_dir(),
        device=config.device,
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
        is_eager=config.eager,
        llm_backend=config.llm_backend,
        merged_hf_dir=config.merged_hf_dir,
        tensorrt_llm_worker=config.tensorrt_llm_worker,
        tensorrt_llm_sampling=config.tensorrt_llm_sampling,
        tensorrt_llm_stream_interval=config.tensorrt_llm_stream_interval,
        tensorrt_llm_overlap=config.tensorrt_llm_overlap,
        tensorrt_llm_reuse=config.tensorrt_llm_reuse,
    )
    numbers = ("max_utterances", "max_active_clauses", "max_flow_batch", "encoder_processes")
    rooms = {name: getattr(config, name) for name in numbers}
    return dataclasses.replace(chosen, **{name: room for name, room in rooms.items() if room is not None})


def build_engine(config: GatewayConfig, on_progress: Progress = SILENT) -> Engine:
    return create_engine(engine_config(config), on_progress=on_progress)


@asynccontextmanager
async def local_gateway(config: GatewayConfig, on_progress: Progress = SILENT) -> AsyncIterator[str]:
    """The URL of a gateway with the configured model, on a free loopback port and no other, without keys.

    Raises CommandError.
    """
    config = dataclasses.replace(
        config, api_key=None, api_keys_file=None, require_key=False, metrics_port=None, agent_port=None
    )
    try:
        async with running_gateway(config, build_engine(config, on_progress)) as url:
            yield url
    except GatewayError as error:
        raise CommandError(str(error)) from error
