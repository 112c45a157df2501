"""Triton kernel of the input: what of an Euler step begins its residual. Only the CUDA path imports this module."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_lines"])
def project_input_kernel(
    x_ptr,  # [L, 80] float32; L = rows * frames
    weight_ptr,  # [D, 80]
    base_ptr,  # [C, L, D] float32
    hidden_ptr,  # [C, L, D] float32, written
    num_lines,
    DIM: tl.constexpr,
    MELS: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """A program: BLOCK_L frames, BLOCK_D channels, both CFG halves (they share x)."""
    lines = tl.program_id(0) * BLOCK_L + tl.arange(0, BLOCK_L)
    channels = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    mels = tl.arange(0, BLOCK_K)
    is_line, is_channel, is_mel = lines < num_lines, channels < DIM, mels < MELS
    if IS_PDL:
        tl.extra.cuda.gdc_launch_dependents()
    x = tl.load(x_ptr + lines[:, None] * MELS + mels[None, :], mask=is_line[:, None] & is_mel[None, :], other=0.0)
    weight = tl.load(
        weight_ptr + channels[None, :] * MELS + mels[:, None], mask=is_channel[None, :] & is_mel[:, None], other=0.0
    )
    projected = tl.dot(x.to(weight_ptr.dtype.element_ty), weight, input_precision="ieee")
    is_cell = is_line[:, None] & is_channel[None, :]
    for half in tl.static_range(2):
        cells = (half * num_lines + lines)[:, None] * DIM + channels[None, :]
        tl.store(hidden_ptr + cells, projected + tl.load(base_ptr + cells, mask=is_cell), mask=is_cell)
