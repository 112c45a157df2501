"""What the host gives attend.cu: arguments, programs and their memory. No CUDA here."""

import ctypes
from pathlib import Path
from typing import Final

import torch

from voicegate.engine.token2wav.flow.block_pool import CFG_HALVES
from voicegate.engine.token2wav.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.token2wav.flow.cuda.buffers import BatchView
from voicegate.engine.token2wav.flow.cuda.tensors import FlowTensors

KERNEL: Final = Path(__file__).with_name("kernel") / "attend.cu"

HEAD_DIM: Final = 64
_NUM_WARPS: Final = 12
_QUERIES: Final = 16  # of a program

NUM_THREADS: Final = 32 * _NUM_WARPS
# Of each warp a mean in float16, in rows that are padded, a highest score and a total; the angles before take less.
SHARED_MEMORY_BYTES: Final = _NUM_WARPS * _QUERIES * (2 * HEAD_DIM + 16 + 2 * 4)
MACROS: Final = {
    "HEAD_DIM": HEAD_DIM,
    "NUM_WARPS": _NUM_WARPS,
    "QUERIES": _QUERIES,
    "FRAMES_PER_BLOCK": FRAMES_PER_BLOCK,
    "SHARED_MEMORY_BYTES": SHARED_MEMORY_BYTES,
}


class Arguments(ctypes.Structure):
    """model.cuh's."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("qkv", "out", "pool", "cosines", "sines", "step", "rows")),
        *((name, ctypes.c_int32) for name in ("layer", "num_lines", "num_heads", "num_steps", "depth")),
        *((name, ctypes.c_int32) for name in ("row_width", "table", "table_width")),
    )


def arguments_of(
    tensors: FlowTensors, batch: BatchView, qkv: torch.Tensor, layer: int, *, out: torch.Tensor
) -> Arguments:
    config = tensors.config
    row_width = batch.rows.stride(0)
    return Arguments(
        qkv=qkv.data_ptr(),
        out=out.data_ptr(),
        pool=tensors.pool.keys_values.data_ptr(),
        cosines=tensors.cosines.data_ptr(),
        sines=tensors.sines.data_ptr(),
        step=batch.step.data_ptr(),
        rows=batch.rows.data_ptr(),
        layer=layer,
        num_lines=batch.num_lines,
        num_heads=config.num_heads,
        num_steps=tensors.modulations.shape[0],
        depth=config.depth,
        row_width=row_width,
        table=batch.table_column,
        table_width=row_width - batch.table_column,
    )


def programs_of(tensors: FlowTensors, batch: BatchView) -> tuple[int, int, int]:
    max_frames = min(batch.num_lines, FRAMES_PER_BLOCK)
    return CFG_HALVES * tensors.config.num_heads, batch.num_rows, -(-max_frames // _QUERIES)


def can_attend(tensors: FlowTensors, batch: BatchView, qkv: torch.Tensor, *, out: torch.Tensor) -> bool:
    """Whether attend.cu is for these types and sizes. More rows than one are more programs than fit at once."""
    return (
        batch.num_rows == 1
        and qkv.dtype == out.dtype == torch.bfloat16
        and tensors.pool.keys_values.dtype == torch.float8_e4m3fn
        and tensors.config.head_dim == HEAD_DIM
    )
