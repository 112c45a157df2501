"""Launches of the attention kernels; see ops. Importing it imports Triton."""

# mypy: disable-error-code="no-untyped-call"

from dataclasses import dataclass

import torch

from voicegate.engine.flow.block_pool import CFG_HALVES
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.flow.cuda import attention_kernels, buffers
from voicegate.engine.flow.cuda.buffers import BatchView
from voicegate.engine.flow.cuda.launching import merge, tile_of
from voicegate.engine.flow.cuda.tensors import FlowTensors


@dataclass(frozen=True, slots=True)
class AttendTile:
    """How a row's blocks are divided among programs; see attention_kernels."""

    splits: int
    prefetch: int  # blocks of a program
    num_stages: int
    num_warps: int
    max_registers: int | None = None


def attend_tile(dtype: torch.dtype, num_lines: int) -> AttendTile:
    """The fastest that were tried on an H200.

    A row has 32 programs for 132 multiprocessors, so one or two rows are split. us behind the qkv product, with splits
    and in one: 6.4 and 9.4 at one row and 450 frames (5.1 and 5.8 at 150), 8.7 and 9.7 at two (6.0 and 5.7); at four
    rows two splits lose, 12.1 to 10.3. Prefetching gains 0.3 us at one row and nothing from four on.
    """
    num_blocks = -(-num_lines // FRAMES_PER_BLOCK)
    splits, prefetch = {1: (4, 2), 2: (2, 4)}.get(num_blocks, (1, 0))
    if dtype.itemsize > 2:  # float32 fills registers and shared memory sooner
        return AttendTile(splits, prefetch, num_stages=1, num_warps=8)
    if splits > 1:
        return AttendTile(splits, prefetch, num_stages=3 if num_blocks == 1 else 5, num_warps=4)
    # 128 registers: four programs to a multiprocessor instead of three.
    return AttendTile(splits, prefetch, num_stages=3, num_warps=4, max_registers=128)


def attend(
    tensors: FlowTensors,
    batch: BatchView,
    qkv: torch.Tensor,
    layer: int,
    *,
    dtype: torch.dtype | None = None,
    tile: AttendTile | None = None,
) -> torch.Tensor:
    config = tensors.config
    heads, channels = config.num_heads, config.head_dim
    out = torch.empty(len(qkv), heads * channels, dtype=dtype or qkv.dtype, device=qkv.device)
    tile = tile or attend_tile(qkv.dtype, batch.num_lines)
    if tile.splits == 1:
        sums = highest = total = out
    else:
        sums = torch.empty(tile.splits, *out.shape, dtype=torch.float32, device=qkv.device)
        highest, total = torch.empty(2, tile.splits, len(qkv) * heads, dtype=torch.float32, device=qkv.device)
    attention_kernels.attend_kernel[(CFG_HALVES * heads, batch.num_rows, tile.splits)](
        qkv,
        sums,
        highest,
        total,
        tensors.pool.keys_values,
        tensors.cosines,
        tensors.sines,
        batch.step,
        batch.rows,
        layer,
        batch.num_lines,
        ROW_WIDTH=batch.rows.stride(0),
        BLOCK=buffers.BLOCK,
        NUM_FRAMES=buffers.NUM_FRAMES,
        START=buffers.START,
        NUM_FINISHED=buffers.NUM_FINISHED,
        FIRST_FRAME=buffers.FIRST_FRAME,
        TABLE=batch.table_column,
        STEPS=tensors.modulations.shape[0],
        DEPTH=config.depth,
        HEADS=heads,
        CHANNELS=channels,
        WHOLE_BLOCK=FRAMES_PER_BLOCK,
        BLOCK_Q=tile_of(min(batch.num_lines, FRAMES_PER_BLOCK)),
        BLOCK_K=tile_of(FRAMES_PER_BLOCK),
        BLOCK_C=tile_of(channels),
        SPLITS=tile.splits,
        PREFETCH=tile.prefetch if tensors.is_pdl else 0,  # else there is nothing to wait for meanwhile
        NUM_STAGES=tile.num_stages,
        IS_PDL=tensors.is_pdl,
        num_warps=tile.num_warps,
        maxnreg=tile.max_registers,
        launch_pdl=tensors.is_pdl,
    )
    if tile.splits > 1:
        merge(tensors, sums, highest, total, out=out)
    return out
