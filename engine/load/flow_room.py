"""How many blocks of memory a flow is given: for all voices and clauses that may be, or as many as a GPU can hold."""

import torch

from voicegate.engine.config import EngineConfig
from voicegate.engine.core.stages import VoiceRoom
from voicegate.engine.interface import EngineError
from voicegate.engine.load.devices import DTYPES, KV_DTYPES, Device, free_gpu_bytes
from voicegate.engine.load.memory import SPARE_GPU_BYTES, Token2wavNeeds
from voicegate.engine.load.startup import ModelStart
from voicegate.engine.units import FRAME_RATE_HZ


def flow_dtypes(config: EngineConfig, device: Device) -> tuple[torch.dtype, torch.dtype]:
    """Of what is computed, and of the keys and values that are kept."""
    if device.is_cuda:
        return DTYPES[config.precision], KV_DTYPES[config.kv_dtype]
    return torch.float32, torch.float32


def num_flow_blocks(
    config: EngineConfig, needs: Token2wavNeeds, device: Device, *, room: VoiceRoom, start: ModelStart
) -> int:
    """Raises EngineError where a GPU has no room for the voices and a clause."""
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
