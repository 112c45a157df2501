"""Launches of the attention kernels; see step. Importing it imports Triton."""

# mypy: disable-error-code="no-untyped-call"

from dataclasses import dataclass
from typing import Final

import torch
import triton

from voicegate.engine import units
from voicegate.engine.families.stepaudio2.flow.chunk_buffers import ChunkBuffers
from voicegate.engine.families.stepaudio2.flow.cuda import attention_kernels
from voicegate.engine.families.stepaudio2.flow.cuda.tensors import StepTensors
from voicegate.engine.families.stepaudio2.flow.estimator import INNER_NORM_EPS
from voicegate.engine.families.stepaudio2.flow.memory import CFG_HALVES
from voicegate.engine.flow.cuda.launching import merge, tile_of

_KEYS: Final = 64  # of a tile
# A row's context is split until there are so many programs, if it has so many tiles: a GPU's multiprocessors. Lower ->
# more of them idle at one row; higher -> more to merge.
_PROGRAMS: Final = 128
_MAX_SPLITS: Final = 8
# From so many programs on, more of them at once are worth that a few registers spill.
_MANY_PROGRAMS: Final = 1024
_MAX_REGISTERS_OF_MANY: Final = 168
_FRAMES: Final = 64  # of a tile; what a chunk has fewer is masked


@dataclass(frozen=True, slots=True)
class AttendTile:
    """How frames and what they see are divided among programs; see attention_kernels."""

    frames: int
    keys: int
    splits: int
    num_stages: int
    num_warps: int
    max_registers: int | None = None


def attend_tile(dtype: torch.dtype, *, num_rows: int, num_frames: int, num_known: int, num_heads: int) -> AttendTile:
    """The fastest that were tried on an H200."""
    num_programs = CFG_HALVES * num_heads * num_rows * triton.cdiv(num_frames, _FRAMES)
    splits = 1
    while 2 * splits * num_programs <= _PROGRAMS and 2 * splits <= min(triton.cdiv(num_known, _KEYS), _MAX_SPLITS):
        splits *= 2
    if dtype.itemsize > 2:  # float32 fills registers and shared memory sooner
        return AttendTile(_FRAMES, _KEYS, splits, num_stages=1, num_warps=8)
    most = _MAX_REGISTERS_OF_MANY if num_programs >= _MANY_PROGRAMS else None
    return AttendTile(_FRAMES, _KEYS, splits, num_stages=3, num_warps=4, max_registers=most)


def attend(
    tensors: StepTensors, buffers: ChunkBuffers, qkv: torch.Tensor, layer: int, *, tile: AttendTile | None = None
) -> torch.Tensor:
    config, memory, shape = tensors.config, tensors.memory, buffers.shape
    heads, channels = config.num_heads, config.head_dim
    tile = tile or attend_tile(
        qkv.dtype,
        num_rows=shape.num_rows,
        num_frames=shape.num_frames,
        num_known=shape.num_known,
        num_heads=heads,
    )
    out = torch.empty(len(qkv), heads * channels, dtype=qkv.dtype, device=qkv.device)
    if tile.splits == 1:
        sums = highest = total = out
    else:
        sums = torch.empty(tile.splits, *out.shape, dtype=torch.float32, device=qkv.device)
        highest, total = torch.empty(2, tile.splits, len(qkv) * heads, dtype=torch.float32, device=qkv.device)
    weights = tensors.layers[layer]
    num_tiles = triton.cdiv(shape.num_frames, tile.frames)
    attention_kernels.attend_kernel[(CFG_HALVES * heads, shape.num_rows, num_tiles * tile.splits)](
        qkv,
        sums,
        highest,
        total,
        memory.estimator[layer],
        *weights.query_norm,
        *weights.key_norm,
        buffers.new,
        buffers.context,
        buffers.num_tokens,
        buffers.num_context,
        buffers.step,
        shape.num_rows,
        shape.num_frames,
        shape.num_known,
        memory.num_places,
        COUNT_STRIDE=buffers.num_tokens.stride(0),
        FRAMES_PER_TOKEN=units.FRAMES_PER_TOKEN,
        HEADS=heads,
        CHANNELS=channels,
        SCALE=channels**-0.5,
        EPS=INNER_NORM_EPS,
        BLOCK_Q=tile.frames,
        BLOCK_K=tile.keys,
        BLOCK_C=tile_of(channels),
        SPLITS=tile.splits,
        NUM_STAGES=tile.num_stages,
        IS_PDL=tensors.is_pdl,
        num_warps=tile.num_warps,
        maxnreg=tile.max_registers,
        launch_pdl=tensors.is_pdl,
    )
    if tile.splits > 1:
        merge(tensors, sums, highest, total, out=out)
    return out
