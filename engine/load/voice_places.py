"""How many voices' prompts an engine holds at once: all of them, or as many as memory has room for beside speech.

The others' are rendered when they are spoken with (core/voice_shelf.py).
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog
import torch

from voicegate.engine.config import EngineConfig
from voicegate.engine.core.stages import VoiceRoom
from voicegate.engine.load.cosyvoice3 import first_blocks
from voicegate.engine.load.family import family_of
from voicegate.engine.load.memory import gpu_memory, memory_apart
from voicegate.engine.model.config import ModelConfig

log = structlog.get_logger()

# Of what is free for the flow's blocks. Higher -> more voices are heard at once after a pause; lower -> more streams
# beside them, where many voices have been added.
_VOICES_SHARE: Final = 1 / 2
_MEMINFO: Final = Path("/proc/meminfo")


def fitting_room(
    config: EngineConfig, model: ModelConfig, room: VoiceRoom, gpu_bytes: int | None, *, is_llm_apart: bool
) -> VoiceRoom:
    """`room`, without voices for which there is no place at once.

    `config` is resolved. `gpu_bytes`: free on the GPU of the flow; None: it is on the CPU.
    """
    # Of a GPU the usual first block alone is counted: others are left out where voices are many (memory.py).
    num_layouts = first_blocks(config).num_layouts if gpu_bytes is None else 1
    needs = family_of(model).needs(model, dtype=torch.float32, kv_dtype=torch.float32, num_layouts=num_layouts)
    if gpu_bytes is None:
        num_free = _free_host_bytes() // needs.block_bytes
    else:
        memory = memory_apart(config, model, room)[1] if is_llm_apart else gpu_memory(config, model, room)
        num_free = memory.num_blocks_in(gpu_bytes)
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
