"""Memory that a model takes of a GPU, by part, before any of it is loaded. It must not touch a device."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog
import torch

from voicegate.engine.config import EngineConfig
from voicegate.engine.core.stages import VoiceRoom
from voicegate.engine.figures import told_apart
from voicegate.engine.interface import EngineError
from voicegate.engine.llm.torch.model import llm_shapes
from voicegate.engine.load.cosyvoice3 import KERNELS, first_blocks, token2wav_addition
from voicegate.engine.load.devices import DTYPES, KV_DTYPES, layout_of
from voicegate.engine.load.family import family_of
from voicegate.engine.load.llm import llm_positions
from voicegate.engine.model.config import COSYVOICE3, ModelConfig
from voicegate.engine.model.weights import num_weights
from voicegate.engine.units import FRAME_RATE_HZ

log = structlog.get_logger()

# Left by the flow's blocks of the GPU's free memory: all three models' kernels, graphs and activations (none has run
# when the flow is loaded), a voice that is enrolled later. An H200's process had 0.9 GiB outside torch's allocator, the
# CUDA context included, and 2 GiB reserved in it beyond what was in use.
SPARE_GPU_BYTES: Final = 6 << 30
# Bytes of the vocoder's largest bucket (32 streams, 56 frames; Step-Audio2's: 16 rows, 112 frames), and of each
# stream's state from call to call, at 512 channels; other sizes are taken to be in proportion. Tests hold them to the
# first family's buffers.
_VOCODER_CHANNELS: Final = 512
_VOCODER_BUFFER_BYTES: Final = 2006 << 20
_VOCODER_STREAM_BYTES: Final = 300 << 10

# Taken by a process of an H200 before the flow is loaded, beside the parts below: the CUDA context and the allocator's
# rounding. 1382 to 1384 blocks of 88 MiB were left there; tests hold the formula to that.
PROCESS_BYTES: Final = 1200 << 20

# Share of the flow's blocks that voices' prompts may take for short first blocks (ADR 0007). Higher -> more voices have
# them; lower -> more streams beside them.
_LAYOUTS_SHARE: Final = 1 / 8

# Share of the free memory for the flow's blocks. Higher -> more voices are heard at once after a pause; lower -> more
# streams beside them, where many voices have been added.
_VOICES_SHARE: Final = 1 / 2
_MEMINFO: Final = Path("/proc/meminfo")

GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Memory of a resolved configuration."""

    num_weights: int
    llm_weight_bytes: int
    llm_slot_bytes: int  # of all
    vocoder_bytes: int
    backend_bytes: int  # of what computes in our kernels' place, where it is asked for by name
    flow_weight_bytes: int  # twice: as stored, and packed for the kernels
    working_bytes: int  # what is computed on the way, beyond SPARE_GPU_BYTES
    block_bytes: int
    block_frames: int
    voice_blocks: int
    clause_blocks: int  # of the longest clause

    @property
    def block_s(self) -> float:
        """Seconds of context."""
        return self.block_frames / FRAME_RATE_HZ

    @property
    def fixed_bytes(self) -> int:
        """All but the flow's blocks."""
        parts = (
            self.llm_weight_bytes,
            self.llm_slot_bytes,
            self.vocoder_bytes,
            self.backend_bytes,
            self.flow_weight_bytes,
            self.working_bytes,
        )
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
    num_layouts = first_blocks(config).num_layouts
    dtype, kv_dtype = DTYPES[config.precision], KV_DTYPES[config.kv_dtype]
    needs = family_of(model).needs(model, dtype=dtype, kv_dtype=kv_dtype, num_layouts=num_layouts)
    llm_weights = num_weights(llm_shapes(llm))
    flow_weights, vocoder_weights = needs.num_flow_weights, needs.num_vocoder_weights
    vocoder_scale = model.vocoder.base_channels / _VOCODER_CHANNELS
    vocoder_bytes = vocoder_scale * (_VOCODER_BUFFER_BYTES + num_slots * _VOCODER_STREAM_BYTES)
    return GpuMemory(
        num_weights=llm_weights + flow_weights + vocoder_weights,
        llm_weight_bytes=num_bytes * llm_weights,
        llm_slot_bytes=num_bytes * num_slots * llm.num_layers * 2 * positions * llm.num_kv_heads * llm.head_dim,
        vocoder_bytes=4 * vocoder_weights + int(vocoder_bytes),
        backend_bytes=_backend_bytes(config, model),
        flow_weight_bytes=2 * 4 * flow_weights,
        working_bytes=needs.working_bytes,
        block_bytes=needs.block_bytes,
        block_frames=needs.block_frames,
        voice_blocks=sum(map(needs.num_blocks, room.prompt_tokens)),
        clause_blocks=needs.num_speech_blocks(config.max_clause_tokens),
    )


def _backend_bytes(config: EngineConfig, model: ModelConfig) -> int:
    """Bytes of additions that are asked for by name."""
    if model.family != COSYVOICE3:
        return 0
    named = {config.vocoder_backend, config.flow_backend} - {"auto", KERNELS}
    return sum(found.gpu_bytes(config, model) for name in named if (found := token2wav_addition(name)) is not None)


def gpu_memories(config: EngineConfig, model: ModelConfig, room: VoiceRoom) -> Mapping[str, GpuMemory]:
    """By device, as `config` names them; "" is the only one. The last has a flow."""
    layout = layout_of(config)
    return {"": gpu_memory(config, model, room)} if layout is None else layout.gpu_memories(config, model, room)


def spare_room(config: EngineConfig) -> VoiceRoom:
    """For voices that may come: where those that are there are not known."""
    return VoiceRoom((config.spare_voice_tokens,) * config.spare_voices)


def with_layouts_that_fit(config: EngineConfig, model: ModelConfig, room: VoiceRoom, free_bytes: int) -> EngineConfig:
    """`config`, resolved; without short first blocks where they would leave too little for speech beside the voices."""
    usual = replace(config, whole_first_block_tokens=config.first_block_tokens)
    least = _of_flow(usual, model, room)
    most_blocks = least.voice_blocks + int(_LAYOUTS_SHARE * least.num_blocks_in(free_bytes))
    return config if _of_flow(config, model, room).voice_blocks <= most_blocks else usual


def _of_flow(config: EngineConfig, model: ModelConfig, room: VoiceRoom) -> GpuMemory:
    *_, memory = gpu_memories(config, model, room).values()
    return memory


def fitting_room(config: EngineConfig, model: ModelConfig, room: VoiceRoom, gpu_bytes: int | None) -> VoiceRoom:
    """`room`, without voices for which there is no place at once: these take turns (core/voice_shelf.py).

    `config` is resolved. `gpu_bytes`: free on the GPU of the flow; None: it is on the CPU.
    """
    # On a GPU the usual first block alone is counted: others are left out where voices are many.
    num_layouts = first_blocks(config).num_layouts if gpu_bytes is None else 1
    needs = family_of(model).needs(model, dtype=torch.float32, kv_dtype=torch.float32, num_layouts=num_layouts)
    if gpu_bytes is None:
        num_free = _free_host_bytes() // needs.block_bytes
    else:
        num_free = _of_flow(config, model, room).num_blocks_in(gpu_bytes)
    fitting = room_within(room, needs.num_blocks, int(_VOICES_SHARE * num_free))
    if fitting != room:
        log.info("voices_take_turns", num_prompts=len(room.prompt_tokens), num_held=len(fitting.prompt_tokens))
    return fitting


def room_within(room: VoiceRoom, num_blocks: Callable[[int], int], most_blocks: int) -> VoiceRoom:
    """The longest prompt has a place, or its voice could not speak; then the others, the longer first."""
    if sum(map(num_blocks, room.prompt_tokens)) <= most_blocks:
        return room
    longest, *others = sorted(room.prompt_tokens, reverse=True)
    kept, num_left = [longest], most_blocks - num_blocks(longest)
    for num_tokens in others:
        if num_blocks(num_tokens) <= num_left:
            num_left -= num_blocks(num_tokens)
            kept.append(num_tokens)
    return VoiceRoom(tuple(kept))


def _free_host_bytes() -> int:
    """Half of all where the system does not tell."""
    try:
        (line,) = [line for line in _MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:")]
        return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def check_room(memory: GpuMemory, config: EngineConfig, free_bytes: int, *, where: str = "the GPU") -> None:
    """Before anything is loaded. Raises EngineError with the parts and what to change."""
    if memory.least_bytes <= free_bytes:
        return
    slot_bytes = memory.llm_slot_bytes // config.max_active_clauses
    excess = memory.least_bytes - free_bytes
    num_fitting = config.max_active_clauses - math.ceil(excess / slot_bytes) if slot_bytes else 0
    remedies = ["free its memory", "take a larger one"]
    if num_fitting > 0:
        remedies.insert(0, f"set max_active_clauses to {num_fitting} or less (it is {config.max_active_clauses})")
    if config.kv_dtype != "float8" and config.precision == "bfloat16":
        remedies.insert(0, "use kv_dtype float8 where the GPU has it")
    free, least = told_apart(free_bytes / GIB, memory.least_bytes / GIB, decimals=1)
    raise EngineError(
        f"{free} GiB are free on {where} and this model takes {least} at the "
        f"least: {_told(memory)}; {', or '.join(remedies)} (`voicegate size` tells what fits)"
    )


def _told(memory: GpuMemory) -> str:
    num_blocks = memory.voice_blocks + memory.clause_blocks
    num_seconds = num_blocks * memory.block_frames // FRAME_RATE_HZ
    parts = {
        "the LLM's weights": memory.llm_weight_bytes,
        "its slots": memory.llm_slot_bytes,
        "the vocoder": memory.vocoder_bytes,
        "other backends' engines": memory.backend_bytes,
        "the flow's weights": memory.flow_weight_bytes,
        f"{num_seconds} s of context for voices and one clause": num_blocks * memory.block_bytes,
        "kernels, graphs and activations": SPARE_GPU_BYTES + memory.working_bytes,
    }
    return ", ".join(f"{name} {num_bytes / GIB:.1f}" for name, num_bytes in parts.items() if num_bytes)
