"""Launches of the kernels of input, norms, convolutions' taps and output; see step. Importing it imports Triton."""

# mypy: disable-error-code="no-untyped-call"

from typing import Final

import torch
import triton

from voicegate.engine import units
from voicegate.engine.families.stepaudio2.flow.chunk_buffers import ChunkBuffers
from voicegate.engine.families.stepaudio2.flow.cuda import conv_kernels, input_kernels
from voicegate.engine.families.stepaudio2.flow.cuda.tensors import StepTensors
from voicegate.engine.families.stepaudio2.flow.estimator import INNER_NORM_EPS, NORM_EPS
from voicegate.engine.families.stepaudio2.flow.memory import CFG_HALVES
from voicegate.engine.families.stepaudio2.flow.weights import CONV_TAPS
from voicegate.engine.flow.cuda import launching, line_kernels
from voicegate.engine.flow.cuda.launching import MIN_TILE
from voicegate.engine.flow.estimator import MISH_LIMIT

_INPUT_CHANNELS: Final = 64  # of a program
_CHANNELS_PER_WARP: Final = 128  # four a thread
_MAX_WARPS: Final = 4


def project_input(tensors: StepTensors, buffers: ChunkBuffers) -> torch.Tensor:
    """-> hidden [C * B * n, D] float32."""
    dim = tensors.config.dim
    num_lines = buffers.shape.num_rows * buffers.shape.num_frames
    hidden = torch.empty(CFG_HALVES * num_lines, dim, dtype=torch.float32, device=buffers.x.device)
    block_d = min(int(triton.next_power_of_2(dim)), _INPUT_CHANNELS)
    input_kernels.project_input_kernel[(triton.cdiv(num_lines, MIN_TILE), triton.cdiv(dim, block_d))](
        buffers.x,
        tensors.x_weight,
        buffers.base,
        hidden,
        num_lines,
        DIM=dim,
        MELS=units.NUM_MELS,
        BLOCK_L=MIN_TILE,
        BLOCK_K=int(triton.next_power_of_2(units.NUM_MELS)),
        BLOCK_D=block_d,
        IS_PDL=tensors.is_pdl,
        num_warps=4,
    )
    return hidden


def norm(
    tensors: StepTensors,
    buffers: ChunkBuffers,
    hidden: torch.Tensor,
    *,
    update: torch.Tensor | None,
    gate_row: int,
    scale_row: int,
) -> torch.Tensor:
    """hidden += gate * update, if there is one, which may be in parts to be summed; -> its modulated norm."""
    num_lines, dim = hidden.shape
    block_d = int(triton.next_power_of_2(dim))
    out = torch.empty(num_lines, dim, dtype=tensors.dtype, device=hidden.device)
    line_kernels.norm_kernel[(num_lines,)](
        hidden,
        update if update is not None else out,
        tensors.modulations,
        out,
        buffers.step,
        gate_row,
        scale_row,
        num_lines,
        NUM_PARTS=update.numel() // hidden.numel() if update is not None else 0,
        TABLE_ROWS=tensors.modulations.shape[1],
        DIM=dim,
        EPS=NORM_EPS,
        BLOCK_D=block_d,
        IS_PDL=tensors.is_pdl,
        num_warps=_line_warps(block_d),
        launch_pdl=tensors.is_pdl,
    )
    return out


def norm_taps(
    tensors: StepTensors,
    buffers: ChunkBuffers,
    hidden: torch.Tensor,
    layer: int,
    *,
    update: torch.Tensor,
    gate_row: int,
    scale_row: int,
) -> torch.Tensor:
    """`norm` -> [C * B * n, 3 * D], what the first convolution multiplies; its tails move on."""
    num_lines, dim = hidden.shape
    shape = buffers.shape
    block_d = int(triton.next_power_of_2(dim))
    taps = torch.empty(num_lines, CONV_TAPS * dim, dtype=tensors.dtype, device=hidden.device)
    conv_kernels.norm_taps_kernel[(shape.num_frames, CFG_HALVES * shape.num_rows)](
        hidden,
        update,
        tensors.modulations,
        taps,
        buffers.estimator_tails,
        buffers.num_tokens,
        buffers.step,
        gate_row,
        scale_row,
        layer,
        shape.num_rows,
        shape.num_frames,
        COUNT_STRIDE=buffers.num_tokens.stride(0),
        FRAMES_PER_TOKEN=units.FRAMES_PER_TOKEN,
        NUM_PARTS=update.numel() // hidden.numel(),
        STEPS=len(tensors.modulations),
        TABLE_ROWS=tensors.modulations.shape[1],
        DEPTH=tensors.config.depth,
        DIM=dim,
        TAPS=CONV_TAPS,
        EPS=NORM_EPS,
        BLOCK_D=block_d,
        IS_PDL=tensors.is_pdl,
        num_warps=_line_warps(block_d),
        launch_pdl=tensors.is_pdl,
    )
    return taps


def mish_taps(tensors: StepTensors, buffers: ChunkBuffers, convolved: torch.Tensor, layer: int) -> torch.Tensor:
    """The first convolution [parts * C * B * n, D] -> [C * B * n, 3 * D], what the second multiplies."""
    dim = tensors.config.dim
    shape = buffers.shape
    num_lines = CFG_HALVES * shape.num_rows * shape.num_frames
    block_d = int(triton.next_power_of_2(dim))
    taps = torch.empty(num_lines, CONV_TAPS * dim, dtype=tensors.dtype, device=convolved.device)
    conv_kernels.mish_taps_kernel[(shape.num_frames, CFG_HALVES * shape.num_rows)](
        convolved,
        *tensors.layers[layer].conv_norm,
        taps,
        buffers.estimator_tails,
        buffers.num_tokens,
        buffers.step,
        layer,
        shape.num_rows,
        shape.num_frames,
        COUNT_STRIDE=buffers.num_tokens.stride(0),
        FRAMES_PER_TOKEN=units.FRAMES_PER_TOKEN,
        NUM_PARTS=convolved.numel() // (num_lines * dim),
        STEPS=len(tensors.modulations),
        DEPTH=tensors.config.depth,
        DIM=dim,
        TAPS=CONV_TAPS,
        EPS=INNER_NORM_EPS,
        MISH_LIMIT=MISH_LIMIT,
        BLOCK_D=block_d,
        IS_PDL=tensors.is_pdl,
        num_warps=_line_warps(block_d),
        launch_pdl=tensors.is_pdl,
    )
    return taps


def _line_warps(block_d: int) -> int:
    """No more than a line has channels for: with more, two threads would read what one of them overwrites."""
    return min(max(block_d // _CHANNELS_PER_WARP, 1), _MAX_WARPS)


def euler(tensors: StepTensors, buffers: ChunkBuffers, normed: torch.Tensor) -> None:
    """normed [C * B * n, D] -> velocity, guidance, and x one Euler step further, in place."""
    num_lines = buffers.shape.num_rows * buffers.shape.num_frames
    launching.euler(tensors, *tensors.out, buffers.x, buffers.step, normed, num_lines=num_lines)
