"""What a model takes of a GPU's memory, by part, before any of it is loaded. It must not touch a device."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import EngineError
from voicegate.engine.llm.model import llm_shapes
from voicegate.engine.loading.devices import DTYPES, KV_DTYPES
from voicegate.engine.loading.llm import llm_positions
from voicegate.engine.loop.stages import VoiceRoom
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.weights import Shape
from voicegate.engine.token2wav.flow import chunking
from voicegate.engine.token2wav.flow.block_pool import bytes_per_block
from voicegate.engine.token2wav.flow.weights import flow_shapes
from voicegate.engine.token2wav.vocoder.weights import vocoder_shapes

# What the flow's blocks leave of the GPU's free memory: all three models' kernels, graphs and activations (none has run
# when the flow is loaded), a voice that is enrolled later. An H200's process had 0.9 GiB outside torch's allocator, the
# CUDA context included, and 2 GiB reserved in it beyond what was in use.
SPARE_GPU_BYTES: Final = 6 << 30
# Of the vocoder's largest bucket (32 streams, 56 frames), and of what each stream carries from call to call, at 512
# channels; other sizes are taken to be in proportion. Tests hold them to the buffers that it lays out.
_VOCODER_CHANNELS: Final = 512
_VOCODER_BUFFER_BYTES: Final = 2006 << 20
_VOCODER_STREAM_BYTES: Final = 300 << 10

# What a process has taken of an H200 before the flow is loaded, beside the parts below: the CUDA context and what the
# allocator rounds up. 1382 to 1384 blocks of 88 MiB were left there; tests hold the formula to that.
PROCESS_BYTES: Final = 1200 << 20

GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Of a resolved configuration."""

    num_weights: int
    llm_weight_bytes: int
    llm_slot_bytes: int  # of all
    vocoder_bytes: int
    flow_weight_bytes: int  # twice: as stored, and packed for the kernels
    block_bytes: int
    voice_blocks: int
    clause_blocks: int  # of the longest clause

    @property
    def fixed_bytes(self) -> int:
        """All but the flow's blocks."""
        parts = (self.llm_weight_bytes, self.llm_slot_bytes, self.vocoder_bytes, self.flow_weight_bytes)
        return sum(parts) + SPARE_GPU_BYTES

    @property
    def least_bytes(self) -> int:
        """With blocks for the voices and for one clause."""
        return self.fixed_bytes + self.block_bytes * (self.voice_blocks + self.clause_blocks)

    def num_blocks_in(self, free_bytes: int) -> int:
        return max(free_bytes - self.fixed_bytes, 0) // self.block_bytes


def gpu_memory(config: EngineConfig, model: ModelConfig, room: VoiceRoom) -> GpuMemory:
    """`config` is resolved."""
    num_bytes = DTYPES[config.precision].itemsize
    llm, num_slots = model.llm, config.max_active_clauses
    positions = llm_positions(config, model, room.longest_tokens)
    llm_weights, flow_weights = _num_weights(llm_shapes(llm)), _num_weights(flow_shapes(model.cosyvoice3_flow))
    vocoder_weights = _num_weights(vocoder_shapes(model.vocoder))
    vocoder_scale = model.vocoder.base_channels / _VOCODER_CHANNELS
    vocoder_bytes = vocoder_scale * (_VOCODER_BUFFER_BYTES + num_slots * _VOCODER_STREAM_BYTES)
    return GpuMemory(
        num_weights=llm_weights + flow_weights + vocoder_weights,
        llm_weight_bytes=num_bytes * llm_weights,
        llm_slot_bytes=num_bytes * num_slots * llm.num_layers * 2 * positions * llm.num_kv_heads * llm.head_dim,
        vocoder_bytes=4 * vocoder_weights + int(vocoder_bytes),
        flow_weight_bytes=2 * 4 * flow_weights,
        block_bytes=flow_block_bytes(config, model),
        voice_blocks=sum(map(chunking.num_prompt_blocks, room.prompt_tokens)),
        clause_blocks=chunking.num_speech_blocks(config.max_clause_tokens),
    )


def spare_room(config: EngineConfig) -> VoiceRoom:
    """For voices that may come: where those that are there are not known."""
    return VoiceRoom((config.spare_voice_tokens,) * config.spare_voices)


def flow_block_bytes(config: EngineConfig, model: ModelConfig) -> int:
    """On a GPU; `config` is resolved."""
    return bytes_per_block(
        model.cosyvoice3_flow.estimator,
        num_steps=model.cosyvoice3_flow.num_euler_steps,
        dtype=DTYPES[config.precision],
        kv_dtype=KV_DTYPES[config.kv_dtype],
    )


def check_room(memory: GpuMemory, config: EngineConfig, free_bytes: int) -> None:
    """Before anything is loaded. Raises EngineError with the parts and what to change."""
    if memory.least_bytes <= free_bytes:
        return
    slot_bytes = memory.llm_slot_bytes // config.max_active_clauses
    excess = memory.least_bytes - free_bytes
    num_fitting = config.max_active_clauses - math.ceil(excess / slot_bytes)
    remedies = ["free its memory", "take a larger one"]
    if num_fitting > 0:
        remedies.insert(0, f"set max_active_clauses to {num_fitting} or less (it is {config.max_active_clauses})")
    if config.kv_dtype != "float8" and config.precision == "bfloat16":
        remedies.insert(0, "use kv_dtype float8 where the GPU has it")
    raise EngineError(
        f"{free_bytes / GIB:.1f} GiB are free on the GPU and this model takes {memory.least_bytes / GIB:.1f} at the "
        f"least: {_told(memory)}; {', or '.join(remedies)} (`voicegate size` tells what fits)"
    )


def _told(memory: GpuMemory) -> str:
    num_blocks = memory.voice_blocks + memory.clause_blocks
    parts = {
        "the LLM's weights": memory.llm_weight_bytes,
        "its slots": memory.llm_slot_bytes,
        "the vocoder": memory.vocoder_bytes,
        "the flow's weights": memory.flow_weight_bytes,
        f"{num_blocks} s of context for voices and one clause": num_blocks * memory.block_bytes,
        "kernels, graphs and activations": SPARE_GPU_BYTES,
    }
    return ", ".join(f"{name} {num_bytes / GIB:.1f}" for name, num_bytes in parts.items())


def _num_weights(shapes: Mapping[str, Shape]) -> int:
    return sum(map(math.prod, shapes.values()))
