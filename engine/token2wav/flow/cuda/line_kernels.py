"""Triton kernels that take lines one by one or few at a time: adaLN, small products, the Euler step. See plain_ops.

Shapes: C = 2 CFG halves, B rows, n frames, D = dim; frame i of row b of half h is line (h * B + b) * n + i. Every
per-batch number comes from `rows` (lane.py's columns) and `step` on the device. Only the CUDA path imports this module
(Triton is optional).
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl

from engine.token2wav.flow.cuda.attention_kernels import LOG2_E


@triton.jit(do_not_specialize=["gate_row", "scale_row"])
def norm_kernel(
    hidden_ptr,  # [lines, D] float32, updated in place
    update_ptr,  # [lines, D], or anything without HAS_UPDATE
    modulation_ptr,  # [steps, table rows, D] float32
    out_ptr,  # [lines, D]
    step_ptr,
    gate_row,
    scale_row,
    HAS_UPDATE: tl.constexpr,
    TABLE_ROWS: tl.constexpr,
    DIM: tl.constexpr,
    EPS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """A program: one line."""
    line = tl.program_id(0).to(tl.int64)
    channels = tl.arange(0, BLOCK_D)
    is_channel = channels < DIM
    modulation = modulation_ptr + tl.load(step_ptr) * (TABLE_ROWS * DIM) + channels
    scale = tl.load(modulation + scale_row * DIM, mask=is_channel, other=0.0)
    shift = tl.load(modulation + (scale_row + 1) * DIM, mask=is_channel, other=0.0)
    gate = tl.load(modulation + gate_row * DIM, mask=is_channel & HAS_UPDATE, other=0.0)
    if IS_PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    hidden = tl.load(hidden_ptr + line * DIM + channels, mask=is_channel, other=0.0)
    if HAS_UPDATE:
        update = tl.load(update_ptr + line * DIM + channels, mask=is_channel, other=0.0).to(tl.float32)
        hidden += update * gate
        tl.store(hidden_ptr + line * DIM + channels, hidden, mask=is_channel)
    centred = tl.where(is_channel, hidden - tl.sum(hidden, axis=0) / DIM, 0.0)
    inverse = tl.rsqrt(tl.sum(centred * centred, axis=0) / DIM + EPS)
    normed = centred * inverse * scale + shift
    tl.store(out_ptr + line * DIM + channels, normed.to(out_ptr.dtype.element_ty), mask=is_channel)


@triton.jit
def prefetch_rows(weight_ptr, rows, WIDTH: tl.constexpr):
    """Ask for whole rows [., WIDTH] of weights in L2 while the kernel before is still running."""
    tl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;",
        "=r,l,r",
        [
            weight_ptr + rows * WIDTH,
            tl.full(rows.shape, WIDTH * (weight_ptr.dtype.element_ty.primitive_bitwidth // 8), tl.int32),
        ],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit(do_not_specialize=["num_lines"])
def linear_kernel(
    x_ptr,  # [lines, K]
    weight_ptr,  # [N, K]
    bias_ptr,  # [N]
    out_ptr,  # [lines, N]
    num_lines,
    WIDTH_IN: tl.constexpr,
    WIDTH_OUT: tl.constexpr,
    HAS_GELU: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """x @ weight.T + bias, then GELU's tanh form: for few lines, where cuBLAS is bound by latency.

    A program: BLOCK_L lines, BLOCK_O outputs; both widths are multiples of the blocks.
    """
    lines = tl.program_id(1) * BLOCK_L + tl.arange(0, BLOCK_L)
    outs = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    ks = tl.arange(0, BLOCK_K)
    is_line = lines < num_lines
    if IS_PDL:
        prefetch_rows(weight_ptr, outs, WIDTH_IN)
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    x = x_ptr + lines[:, None] * WIDTH_IN + ks[None, :]
    weight = weight_ptr + outs[None, :] * WIDTH_IN + ks[:, None]
    sums = tl.zeros([BLOCK_L, BLOCK_O], tl.float32)
    for first in tl.range(0, WIDTH_IN, BLOCK_K, num_stages=NUM_STAGES):
        part = tl.load(x + first, mask=is_line[:, None], other=0.0)
        sums = tl.dot(part, tl.load(weight + first), sums, input_precision="ieee")
    sums += tl.load(bias_ptr + outs).to(tl.float32)[None, :]
    if HAS_GELU:
        # x * (1 + tanh(u)) / 2 = x * sigmoid(2u)
        twice = 1.5957691216057308 * (sums + 0.044715 * sums * sums * sums)
        sums = sums / (1 + tl.exp2(-LOG2_E * twice))
    out = out_ptr + lines[:, None] * WIDTH_OUT + outs[None, :]
    tl.store(out, sums.to(out_ptr.dtype.element_ty), mask=is_line[:, None])


@triton.jit(do_not_specialize=["num_rows", "num_frames"])
def euler_kernel(
    normed_ptr,  # [C, B, n, D]
    weight_ptr,  # [80, D]
    bias_ptr,  # [80] float32
    width_ptr,  # [steps] float32
    x_ptr,  # [B, n, 80] float32, updated in place
    step_ptr,
    num_rows,
    num_frames,
    CFG_RATE: tl.constexpr,
    DIM: tl.constexpr,
    MELS: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """A program: BLOCK_L frames, whosever they are, and BLOCK_M mel bins; both halves of them."""
    num_lines = num_rows * num_frames
    lines = tl.program_id(0) * BLOCK_L + tl.arange(0, BLOCK_L)
    mels = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    ks = tl.arange(0, BLOCK_K)
    is_line = lines < num_lines
    is_mel = mels < MELS
    conditioned = tl.zeros([BLOCK_L, BLOCK_M], tl.float32)
    unconditioned = tl.zeros([BLOCK_L, BLOCK_M], tl.float32)
    if IS_PDL:
        tl.extra.cuda.gdc_wait()
    for first in tl.range(0, DIM, BLOCK_K, num_stages=NUM_STAGES):
        is_k = first + ks < DIM
        weight = tl.load(
            weight_ptr + mels[None, :] * DIM + (first + ks)[:, None], mask=is_mel[None, :] & is_k[:, None], other=0.0
        )
        normed = normed_ptr + lines[:, None] * DIM + (first + ks)[None, :]
        is_cell = is_line[:, None] & is_k[None, :]
        conditioned = tl.dot(tl.load(normed, mask=is_cell, other=0.0), weight, conditioned, input_precision="ieee")
        normed += num_lines * DIM
        unconditioned = tl.dot(tl.load(normed, mask=is_cell, other=0.0), weight, unconditioned, input_precision="ieee")
    bias = tl.load(bias_ptr + mels, mask=is_mel, other=0.0)[None, :]
    velocity = (1 + CFG_RATE) * (conditioned + bias) - CFG_RATE * (unconditioned + bias)
    cells = x_ptr + lines[:, None] * MELS + mels[None, :]
    is_cell = is_line[:, None] & is_mel[None, :]
    width = tl.load(width_ptr + tl.load(step_ptr))
    tl.store(cells, tl.load(cells, mask=is_cell) + width * velocity, mask=is_cell)
