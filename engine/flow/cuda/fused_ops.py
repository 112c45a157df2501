"""Launches of the kernels of input, norm and output; see ops. Importing it imports Triton."""

# mypy: disable-error-code="no-untyped-call"

from collections.abc import Mapping

import torch
import triton

from voicegate.engine import units
from voicegate.engine.flow.block_pool import CFG_HALVES
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.flow.cuda import buffers, input_kernels, launching, line_kernels
from voicegate.engine.flow.cuda.buffers import BatchView
from voicegate.engine.flow.cuda.launching import MIN_TILE, tile_of
from voicegate.engine.flow.cuda.tensors import FlowTensors
from voicegate.engine.flow.estimator import CONV_HISTORY, MISH_LIMIT, NORM_EPS
from voicegate.engine.flow.weights import CONV_GROUPS

_FRAME_TILE = triton.next_power_of_2(FRAMES_PER_BLOCK)
# Below this many programs of 64 channels the convolutions are cut finer, to fill the GPU, and load further ahead.
_FEW_PROGRAMS = 128


def embed(tensors: FlowTensors, batch: BatchView, hidden: torch.Tensor) -> None:
    num_rows, num_lines = batch.num_rows, batch.num_lines
    dim, steps = tensors.config.dim, tensors.modulations.shape[0]
    shape = (CFG_HALVES, num_rows, CONV_HISTORY + FRAMES_PER_BLOCK, dim)
    window1, window2 = (torch.empty(shape, dtype=tensors.dtype, device=hidden.device) for _ in range(2))
    common = {
        "ROW_WIDTH": batch.rows.stride(0),
        "BLOCK": buffers.BLOCK,
        "NUM_FRAMES": buffers.NUM_FRAMES,
        "START": buffers.START,
        "STEPS": steps,
        "DIM": dim,
        "HISTORY": CONV_HISTORY,
        "WHOLE_BLOCK": FRAMES_PER_BLOCK,
        "BLOCK_N": _FRAME_TILE,
    }
    half_precision = tensors.dtype.itemsize == 2
    block_d = min(tile_of(dim), 64) if half_precision else MIN_TILE
    input_kernels.project_input_kernel[(num_rows, triton.cdiv(dim, block_d))](
        batch.x,
        tensors.x_weight,
        batch.base,
        tensors.input_bias,
        hidden,
        window1,
        window2,
        tensors.pool.tails,
        batch.step,
        batch.rows,
        num_rows,
        num_lines,
        **common,
        BEFORE=buffers.BEFORE,
        MELS=units.NUM_MELS,
        BLOCK_K=tile_of(units.NUM_MELS),
        BLOCK_D=block_d,
        IS_PDL=tensors.is_pdl,
        num_warps=4,
    )
    _convolve(tensors, batch, window1, out=window2, conv=0, common=common)
    _convolve(tensors, batch, window2, out=hidden, conv=1, common=common)


def _convolve(
    tensors: FlowTensors,
    batch: BatchView,
    window: torch.Tensor,
    *,
    out: torch.Tensor,
    conv: int,
    common: Mapping[str, int],
) -> None:
    group = tensors.config.dim // CONV_GROUPS
    num_windows = CFG_HALVES * batch.num_rows
    block_out, num_stages = tile_of(group), 4
    if block_out > 32 and num_windows * CONV_GROUPS < _FEW_PROGRAMS:
        block_out, num_stages = 32, 8
    input_kernels.positional_conv_kernel[(num_windows, CONV_GROUPS * triton.cdiv(group, block_out))](
        window,
        tensors.conv_weights[conv],
        tensors.conv_biases[conv],
        out,
        tensors.pool.tails,
        batch.step,
        batch.rows,
        batch.num_rows,
        batch.num_lines,
        **common,
        IS_LAST=conv == 1,
        GROUP=group,
        MISH_LIMIT=MISH_LIMIT,
        BLOCK_IN=tile_of(group),
        BLOCK_OUT=block_out,
        NUM_STAGES=num_stages if tensors.dtype.itemsize == 2 else 2,
        IS_PDL=tensors.is_pdl,
        num_warps=4,
        launch_pdl=tensors.is_pdl,
    )


def norm(
    tensors: FlowTensors,
    batch: BatchView,
    hidden: torch.Tensor,
    *,
    update: torch.Tensor | None,
    gate_row: int,
    scale_row: int,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    dim = tensors.config.dim
    num_lines = hidden.numel() // dim
    num_parts = update.numel() // hidden.numel() if update is not None else 0
    out = torch.empty(num_lines, dim, dtype=dtype or tensors.dtype, device=hidden.device)
    line_kernels.norm_kernel[(num_lines,)](
        hidden,
        update if update is not None else out,
        tensors.modulations,
        out,
        batch.step,
        gate_row,
        scale_row,
        num_lines,
        NUM_PARTS=num_parts,
        TABLE_ROWS=tensors.modulations.shape[1],
        DIM=dim,
        EPS=NORM_EPS,
        BLOCK_D=triton.next_power_of_2(dim),
        IS_PDL=tensors.is_pdl,
        num_warps=4,
        launch_pdl=tensors.is_pdl,
    )
    return out


def euler(tensors: FlowTensors, batch: BatchView, normed: torch.Tensor) -> None:
    launching.euler(
        tensors, tensors.out_weight, tensors.out_bias, batch.x, batch.step, normed, num_lines=batch.num_lines
    )
