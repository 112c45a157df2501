"""plain_ops with Triton kernels: same signatures, same results up to rounding. Importing it imports Triton."""

# mypy: disable-error-code="no-untyped-call"

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
import triton

from engine import units
from engine.token2wav.flow.block_pool import CFG_HALVES
from engine.token2wav.flow.cuda import attention_kernels, input_kernels, lane, line_kernels
from engine.token2wav.flow.cuda.lane import BlockBuffers
from engine.token2wav.flow.cuda.tensors import FlowTensors
from engine.token2wav.flow.estimator import CONV_HISTORY, MISH_LIMIT, NORM_EPS
from engine.token2wav.flow.weights import CONV_GROUPS

# tl.dot takes no smaller side.
_MIN_TILE = 16
_FRAME_TILE = triton.next_power_of_2(units.FRAMES_PER_BLOCK)
# Below this many programs of 64 channels the convolutions are cut finer, to fill the GPU.
_FEW_PROGRAMS = 128
# Up to this many lines, one stream's block, some products are Triton's; beyond, cuBLAS was faster at every tile.
_FEW_LINES = 100
# Up to this many rows the attention has too few programs to fill the GPU, and the length of each counts.
_FEW_ROWS = 8


@dataclass(frozen=True, slots=True)
class AttendTile:
    keys: int
    num_stages: int
    num_warps: int
    max_registers: int | None = None


@dataclass(frozen=True, slots=True)
class LinearTile:
    lines: int
    outs: int
    depth: int
    num_stages: int
    num_warps: int


def _tile(size: int) -> int:
    return max(int(triton.next_power_of_2(size)), _MIN_TILE)


def embed(tensors: FlowTensors, block: BlockBuffers, hidden: torch.Tensor) -> None:
    num_rows, num_frames = block.num_rows, block.num_frames
    dim, steps = tensors.config.dim, tensors.modulations.shape[0]
    shape = (CFG_HALVES, num_rows, CONV_HISTORY + num_frames, dim)
    window1, window2 = (torch.empty(shape, dtype=tensors.dtype, device=hidden.device) for _ in range(2))
    common = {
        "ROW_WIDTH": block.rows.stride(0),
        "BLOCK": lane.BLOCK,
        "STEPS": steps,
        "DIM": dim,
        "HISTORY": CONV_HISTORY,
        "WHOLE_BLOCK": units.FRAMES_PER_BLOCK,
        "BLOCK_N": _FRAME_TILE,
    }
    half_precision = tensors.dtype.itemsize == 2
    block_d = min(_tile(dim), 64) if half_precision else _MIN_TILE
    input_kernels.project_input_kernel[(num_rows, triton.cdiv(dim, block_d))](
        block.x,
        tensors.x_weight,
        block.base,
        tensors.input_bias,
        hidden,
        window1,
        window2,
        tensors.pool.tails,
        block.step,
        block.rows,
        num_rows,
        num_frames,
        **common,
        BEFORE=lane.BEFORE,
        MELS=units.NUM_MELS,
        BLOCK_K=_tile(units.NUM_MELS),
        BLOCK_D=block_d,
        IS_PDL=tensors.is_pdl,
        num_warps=4,
    )
    _convolve(tensors, block, window1, out=window2, conv=0, common=common)
    _convolve(tensors, block, window2, out=hidden, conv=1, common=common)


def _convolve(
    tensors: FlowTensors,
    block: BlockBuffers,
    window: torch.Tensor,
    *,
    out: torch.Tensor,
    conv: int,
    common: Mapping[str, int],
) -> None:
    group = tensors.config.dim // CONV_GROUPS
    num_lines = CFG_HALVES * block.num_rows
    block_out = _tile(group)
    if block_out > 32 and num_lines * CONV_GROUPS < _FEW_PROGRAMS:
        block_out = 32
    input_kernels.positional_conv_kernel[(num_lines, CONV_GROUPS * triton.cdiv(group, block_out))](
        window,
        tensors.conv_weights[conv],
        tensors.conv_biases[conv],
        out,
        tensors.pool.tails,
        block.step,
        block.rows,
        block.num_rows,
        block.num_frames,
        **common,
        IS_LAST=conv == 1,
        GROUP=group,
        MISH_LIMIT=MISH_LIMIT,
        BLOCK_IN=_tile(group),
        BLOCK_OUT=block_out,
        NUM_STAGES=4 if tensors.dtype.itemsize == 2 else 2,
        IS_PDL=tensors.is_pdl,
        num_warps=4,
        launch_pdl=tensors.is_pdl,
    )


def norm(
    tensors: FlowTensors,
    block: BlockBuffers,
    hidden: torch.Tensor,
    *,
    update: torch.Tensor | None,
    gate_row: int,
    scale_row: int,
) -> torch.Tensor:
    dim = tensors.config.dim
    num_lines = hidden.numel() // dim
    out = torch.empty(num_lines, dim, dtype=tensors.dtype, device=hidden.device)
    line_kernels.norm_kernel[(num_lines,)](
        hidden,
        update if update is not None else out,
        tensors.modulations,
        out,
        block.step,
        gate_row,
        scale_row,
        HAS_UPDATE=update is not None,
        TABLE_ROWS=tensors.modulations.shape[1],
        DIM=dim,
        EPS=NORM_EPS,
        BLOCK_D=triton.next_power_of_2(dim),
        IS_PDL=tensors.is_pdl,
        num_warps=4,
        launch_pdl=tensors.is_pdl,
    )
    return out


def _attend_tile(dtype: torch.dtype, num_rows: int) -> AttendTile:
    """The fastest of bench/kernels/tune_flow.py on an H200."""
    if dtype.itemsize > 2:
        return AttendTile(keys=32, num_stages=1, num_warps=8)  # float32 fills registers and shared memory sooner
    if num_rows <= _FEW_ROWS:
        return AttendTile(keys=128, num_stages=2, num_warps=4)
    # 128 registers: four programs to a multiprocessor instead of three.
    return AttendTile(keys=64, num_stages=2, num_warps=4, max_registers=128)


def attend(
    tensors: FlowTensors, block: BlockBuffers, qkv: torch.Tensor, layer: int, *, tile: AttendTile | None = None
) -> torch.Tensor:
    tile = tile or _attend_tile(qkv.dtype, block.num_rows)
    config = tensors.config
    num_rows, num_frames = block.num_rows, block.num_frames
    heads, channels = config.num_heads, config.head_dim
    out = torch.empty(len(qkv), heads * channels, dtype=qkv.dtype, device=qkv.device)
    attention_kernels.attend_kernel[(CFG_HALVES * heads, num_rows)](
        qkv,
        out,
        tensors.pool.keys_values,
        tensors.cosines,
        tensors.sines,
        block.step,
        block.rows,
        layer,
        num_rows,
        num_frames,
        ROW_WIDTH=block.rows.stride(0),
        BLOCK=lane.BLOCK,
        NUM_FRAMES=lane.NUM_FRAMES,
        NUM_FINISHED=lane.NUM_FINISHED,
        FIRST_FRAME=lane.FIRST_FRAME,
        TABLE=block.table_column,
        STEPS=tensors.modulations.shape[0],
        DEPTH=config.depth,
        HEADS=heads,
        CHANNELS=channels,
        WHOLE_BLOCK=units.FRAMES_PER_BLOCK,
        BLOCK_Q=_tile(num_frames),
        BLOCK_K=tile.keys,
        BLOCK_C=_tile(channels),
        NUM_STAGES=tile.num_stages,
        IS_PDL=tensors.is_pdl,
        num_warps=tile.num_warps,
        maxnreg=tile.max_registers,
        launch_pdl=tensors.is_pdl,
    )
    return out


def _linear_tile(x: torch.Tensor, width_out: int) -> LinearTile | None:
    """The fastest of bench/kernels/tune_flow.py on an H200; None: leave it to cuBLAS."""
    num_lines, width_in = x.shape
    if num_lines > _FEW_LINES or width_in > width_out or x.dtype.itemsize > 2:
        return None
    if width_out > width_in:
        tile = LinearTile(lines=64, outs=64, depth=64, num_stages=6, num_warps=4)
    else:
        tile = LinearTile(lines=64, outs=32, depth=128, num_stages=5, num_warps=4)
    return tile if width_out % tile.outs == 0 and width_in % tile.depth == 0 else None


def launch_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, tile: LinearTile, has_gelu: bool, is_pdl: bool
) -> torch.Tensor:
    num_lines, width_in = x.shape
    width_out = len(weight)
    out = torch.empty(num_lines, width_out, dtype=x.dtype, device=x.device)
    line_kernels.linear_kernel[(width_out // tile.outs, triton.cdiv(num_lines, tile.lines))](
        x,
        weight,
        bias,
        out,
        num_lines,
        WIDTH_IN=width_in,
        WIDTH_OUT=width_out,
        HAS_GELU=has_gelu,
        BLOCK_L=tile.lines,
        BLOCK_O=tile.outs,
        BLOCK_K=tile.depth,
        NUM_STAGES=tile.num_stages,
        IS_PDL=is_pdl,
        num_warps=tile.num_warps,
        launch_pdl=is_pdl,
    )
    return out


def linear(tensors: FlowTensors, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    tile = _linear_tile(x, len(weight))
    if tile is None:
        return F.linear(x, weight, bias)
    return launch_linear(x, weight, bias, tile=tile, has_gelu=False, is_pdl=tensors.is_pdl)


def widen(tensors: FlowTensors, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    tile = _linear_tile(x, len(weight))
    if tile is None:
        # cuBLASLt's epilogue is the tanh form; a CPU's `use_gelu` would be the exact one.
        return torch._addmm_activation(bias, x, weight.t(), use_gelu=True)
    return launch_linear(x, weight, bias, tile=tile, has_gelu=True, is_pdl=tensors.is_pdl)


def euler(tensors: FlowTensors, block: BlockBuffers, normed: torch.Tensor) -> None:
    num_rows, num_frames = block.num_rows, block.num_frames
    half_precision = tensors.dtype.itemsize == 2
    grid = (triton.cdiv(num_rows * num_frames, _MIN_TILE), triton.cdiv(units.NUM_MELS, _MIN_TILE))
    line_kernels.euler_kernel[grid](
        normed,
        tensors.out_weight,
        tensors.out_bias,
        tensors.widths,
        block.x,
        block.step,
        num_rows,
        num_frames,
        CFG_RATE=tensors.cfg_rate,
        DIM=tensors.config.dim,
        MELS=units.NUM_MELS,
        BLOCK_L=_MIN_TILE,
        BLOCK_M=_MIN_TILE,
        BLOCK_K=256 if half_precision else 64,
        NUM_STAGES=3 if half_precision else 1,
        IS_PDL=tensors.is_pdl,
        num_warps=4,
        launch_pdl=tensors.is_pdl,
    )
