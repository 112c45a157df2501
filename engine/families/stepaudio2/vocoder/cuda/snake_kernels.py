"""Triton kernel of what lies between the vocoder's convolutions. Only the CUDA path imports it (Triton is optional)."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_channels", "num_columns"])
def snake_kernel(
    x_ptr,  # [B, channels, N]: a convolution without its bias, or what a block begins with
    bias_ptr,  # [channels]
    residual_ptr,  # [B, channels, N]
    sum_ptr,  # the same, written: residual and convolution; may be x
    out_ptr,  # the same, written: Snake of all that; may be x
    alpha_ptr,  # [channels]
    frames_ptr,  # [B]
    num_channels,
    num_columns,
    FRAMES_STRIDE: tl.constexpr,
    RATE: tl.constexpr,  # a row has its frames * RATE + EXTRA columns
    EXTRA: tl.constexpr,
    IS_CONVOLUTION: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    HAS_SNAKE: tl.constexpr,
    EPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Bias, zeros behind the row's end, residual, Snake. A program: BLOCK columns of one channel of one row."""
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row, channel = tl.program_id(0) // num_channels, tl.program_id(0) % num_channels
    is_column = columns < num_columns
    cells = tl.program_id(0).to(tl.int64) * num_columns + columns
    x = tl.load(x_ptr + cells, mask=is_column, other=0.0)
    if IS_CONVOLUTION:
        num_own = tl.load(frames_ptr + row * FRAMES_STRIDE) * RATE + EXTRA
        x = tl.where(columns < num_own, x + tl.load(bias_ptr + channel), 0.0)
    if HAS_RESIDUAL:
        x += tl.load(residual_ptr + cells, mask=is_column, other=0.0)
        tl.store(sum_ptr + cells, x, mask=is_column)
    if HAS_SNAKE:
        alpha = tl.load(alpha_ptr + channel)
        sine = tl.sin(x * alpha)
        tl.store(out_ptr + cells, x + sine * sine / (alpha + EPS), mask=is_column)
