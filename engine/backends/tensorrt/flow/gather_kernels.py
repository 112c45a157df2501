"""The Triton kernel that brings rows' finished blocks from the pool into one piece. Importing it imports Triton."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import torch
import triton
import triton.language as tl

from voicegate.engine.flow.block_pool import CFG_HALVES
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.flow.cuda import buffers
from voicegate.engine.flow.cuda.buffers import BatchView


@triton.jit
def gather_context_kernel(
    pool_ptr,  # [blocks, steps, depth, 2, C * H, 50, d]
    context_ptr,  # [depth (LAYER_STRIDE apart), 2, C, R, H, L, d], written: zeros behind a row's last finished block
    step_ptr,
    rows_ptr,
    ROW_WIDTH: tl.constexpr,
    NUM_FINISHED: tl.constexpr,  # columns of a row
    TABLE: tl.constexpr,
    STEPS: tl.constexpr,
    DEPTH: tl.constexpr,
    ROWS: tl.constexpr,
    HEADS: tl.constexpr,
    PLACES: tl.constexpr,  # blocks in L
    LAYER_STRIDE: tl.constexpr,
    PIECE: tl.constexpr,  # numbers of one head of one block: one behind the other in both
    BLOCK_P: tl.constexpr,
):
    """A program: one head of one half of one layer's keys or values, in one block of one row."""
    row = tl.program_id(0) // PLACES
    place = tl.program_id(0) % PLACES
    part = tl.program_id(1)  # as the pool counts them
    layer = part // (4 * HEADS)
    kind = part % (4 * HEADS) // HEADS  # keys or values, half
    head = part % HEADS
    cells = rows_ptr + row * ROW_WIDTH
    is_finished = place < tl.load(cells + NUM_FINISHED)
    block = tl.load(cells + TABLE + place)
    numbers = tl.arange(0, BLOCK_P)
    source = pool_ptr + ((block * STEPS + tl.load(step_ptr)) * (DEPTH * 4 * HEADS) + part) * PIECE
    found = tl.load(source + numbers, mask=(numbers < PIECE) & is_finished, other=0.0)
    target = (
        context_ptr
        + layer.to(tl.int64) * LAYER_STRIDE
        + (((kind * ROWS + row) * HEADS + head) * PLACES + place) * PIECE
    )
    tl.store(target + numbers, found.to(context_ptr.dtype.element_ty), mask=numbers < PIECE)


def gather_context(keys_values: torch.Tensor, batch: BatchView, context: torch.Tensor) -> None:
    """Gathers for the step that the batch is at. `context`: [depth, 2, C, R, H, L, d], each layer contiguous.

    An 8-bit float of the pool becomes what it stands for.
    """
    _, steps, depth, _, heads, _, channels = keys_values.shape
    places = context.shape[5] // FRAMES_PER_BLOCK
    piece = FRAMES_PER_BLOCK * channels
    gather_context_kernel[(batch.num_rows * places, depth * 2 * heads)](
        keys_values,
        context,
        batch.step,
        batch.rows,
        ROW_WIDTH=batch.rows.stride(0),
        NUM_FINISHED=buffers.NUM_FINISHED,
        TABLE=batch.table_column,
        STEPS=steps,
        DEPTH=depth,
        ROWS=batch.num_rows,
        HEADS=heads // CFG_HALVES,
        PLACES=places,
        LAYER_STRIDE=context.stride(0),
        PIECE=piece,
        BLOCK_P=triton.next_power_of_2(piece),
        num_warps=4,
    )
