"""A layer's products in float8_e4m3fn, cuBLASLt's. See ops."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

from typing import Final

import torch
import triton
import triton.language as tl

from voicegate.engine.flow.cuda import linear_kernels
from voicegate.engine.flow.cuda.tensors import FlowTensors

_CELLS: Final = 4096  # of a program of GELU


def linear(tensors: FlowTensors, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Needs a GPU of compute capability 8.9, and bfloat16 as the activations' dtype."""
    return torch._scaled_mm(
        x,
        weight.t(),
        tensors.input_scale,
        tensors.weight_scale,
        bias=bias,
        out_dtype=tensors.dtype,
        # Sums of fewer bits: what they round is lost in the rounding of the inputs, and others take 7 to 18 % longer.
        use_fast_accum=True,
    )


def widen(tensors: FlowTensors, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return gelu(linear(tensors, x, weight, bias), dtype=x.dtype, is_pdl=tensors.is_pdl)


def gelu(x: torch.Tensor, *, dtype: torch.dtype, is_pdl: bool) -> torch.Tensor:
    """GELU's tanh form, of another dtype."""
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    gelu_kernel[(triton.cdiv(x.numel(), _CELLS),)](
        x, out, x.numel(), BLOCK=_CELLS, IS_PDL=is_pdl, num_warps=8, launch_pdl=is_pdl
    )
    return out


# Specialised in num_cells: as a multiple of 16 it lets a thread load and store 16 bytes at once. Without, an Euler step
# of 84 rows takes 8.0 ms instead of 7.1.
@triton.jit
def gelu_kernel(x_ptr, out_ptr, num_cells, BLOCK: tl.constexpr, IS_PDL: tl.constexpr):
    """GELU's tanh form of BLOCK cells a program; what is stored saturates."""
    cells = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_cell = cells < num_cells
    if IS_PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    x = tl.load(x_ptr + cells, mask=is_cell, other=0.0).to(tl.float32)
    tl.store(out_ptr + cells, linear_kernels.gelu(x).to(out_ptr.dtype.element_ty), mask=is_cell)
