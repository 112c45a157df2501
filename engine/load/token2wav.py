"""Flow and vocoder of an engine on their device: what every family's have in common."""

from functools import partial
from typing import Any

import torch

from voicegate.engine.config import EngineConfig
from voicegate.engine.core.stages import VoiceRoom
from voicegate.engine.flow.backend import FlowBackend
from voicegate.engine.interface import EngineError
from voicegate.engine.load.cosyvoice3 import first_blocks
from voicegate.engine.load.devices import Device, flow_dtypes, free_gpu_bytes
from voicegate.engine.load.family import family_of
from voicegate.engine.load.memory import SPARE_GPU_BYTES
from voicegate.engine.load.seams import Token2wavNeeds
from voicegate.engine.load.startup import ModelStart
from voicegate.engine.model.config import COSYVOICE3, ModelConfig
from voicegate.engine.units import FRAME_RATE_HZ
from voicegate.engine.vocoder.backend import VocoderBackend


def load_vocoder(config: EngineConfig, model: ModelConfig, device: Device, *, start: ModelStart) -> VocoderBackend:
    """Raises WeightsError, ValueError, and EngineError for a backend that cannot be had here."""
    check_backend("vocoder", config.vocoder_backend, model, device.device)
    return family_of(model).load_vocoder(config, model, device, start=start)


def load_flow(
    config: EngineConfig, model: ModelConfig, device: Device, *, room: VoiceRoom, start: ModelStart
) -> FlowBackend[Any, Any]:
    """Last of the three: on a GPU its blocks take the memory that is left. Raises as `load_vocoder`."""
    check_backend("flow", config.flow_backend, model, device.device)
    family, (dtype, kv_dtype) = family_of(model), flow_dtypes(config, device)
    needs = family.needs(model, dtype=dtype, kv_dtype=kv_dtype, num_layouts=first_blocks(config).num_layouts)
    num_blocks = partial(_num_flow_blocks, config, needs, device, room=room, start=start)
    return family.load_flow(config, model, device, num_blocks=num_blocks, start=start)


def check_backend(part: str, backend: str, model: ModelConfig, device: torch.device) -> None:
    """`backend`: as the user has it for that part. Raises EngineError where this model or device has no such choice."""
    if backend == "auto":
        return
    if device.type != "cuda":
        raise EngineError(f"--{part}-backend {backend} needs a GPU; on a CPU use auto")
    if model.family != COSYVOICE3:
        raise EngineError(
            f"--{part}-backend {backend} runs CosyVoice3's {part} alone; "
            f"{model.name} is a {model.family} model: use auto"
        )


def _num_flow_blocks(
    config: EngineConfig, needs: Token2wavNeeds, device: Device, *, room: VoiceRoom, start: ModelStart
) -> int:
    """For all voices and clauses that may be, or as many as a GPU can hold.

    Raises EngineError where a GPU has no room for the voices and a clause.
    """
    num_voice_blocks = sum(map(needs.num_blocks, room.prompt_tokens))
    blocks_per_clause = needs.num_speech_blocks(config.max_clause_tokens)
    num_blocks = num_voice_blocks + config.max_active_clauses * blocks_per_clause
    if not device.is_cuda:
        return num_blocks
    free_bytes = free_gpu_bytes(device.device)
    weight_bytes = 2 * 4 * needs.num_flow_weights  # as stored, and packed for the kernels
    num_fitting = (free_bytes - SPARE_GPU_BYTES - needs.working_bytes - weight_bytes) // needs.block_bytes
    if num_fitting < num_voice_blocks + blocks_per_clause:
        raise EngineError(
            f"{free_bytes >> 20} MiB are free on the GPU: too little for the voices and one clause "
            f"({needs.bytes_per_second >> 20} MiB a second of context); free memory or use kv_dtype float8"
        )
    num_blocks = min(num_blocks, num_fitting)
    seconds = needs.block_frames / FRAME_RATE_HZ
    start.progress.line(
        f"flow: {num_blocks} blocks of {needs.block_bytes / (1 << 20):.1f} MiB, {seconds:g} s of context each"
    )
    return num_blocks
