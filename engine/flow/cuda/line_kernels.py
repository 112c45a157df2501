"""Triton kernels that take lines one by one or few at a time: adaLN, the Euler step.

Shapes: C = 2 CFG halves, R rows with L lines in all, D = dim; frame i of row r of half h is line h * L + START[r] + i.
Every per-batch number comes from `rows` (columns: buffers.py) and `step` on the device. Only the CUDA path imports this
module (Triton is optional).
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl


@triton.jit
def standardised(values, is_channel, DIM: tl.constexpr, EPS: tl.constexpr):
    """Layer norm of one line without its weight and bias, in float32; 0 where there is no channel."""
    centred = tl.where(is_channel, values - tl.sum(values, axis=0) / DIM, 0.0)
    return centred * tl.rsqrt(tl.sum(centred * centred, axis=0) / DIM + EPS)


@triton.jit
def sum_of_parts(parts_ptr, line, num_lines, channels, is_channel, DIM: tl.constexpr, NUM_PARTS: tl.constexpr):
    """A line of [parts, lines, D], summed in their order in float32."""
    sums = tl.zeros(channels.shape, tl.float32)
    for part in tl.static_range(NUM_PARTS):
        sums += tl.load(parts_ptr + (part * num_lines + line) * DIM + channels, mask=is_channel, other=0.0)
    return sums


@triton.jit(do_not_specialize=["gate_row", "scale_row", "num_lines"])
def norm_kernel(
    hidden_ptr,  # [lines, D] float32, updated in place
    update_ptr,  # [parts, lines, D], or anything if there are none
    modulation_ptr,  # [steps, table rows, D] float32
    out_ptr,  # [lines, D]
    step_ptr,
    gate_row,
    scale_row,
    num_lines,
    NUM_PARTS: tl.constexpr,
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
    gate = tl.load(modulation + gate_row * DIM, mask=is_channel & (NUM_PARTS > 0), other=0.0)
    if IS_PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    hidden = tl.load(hidden_ptr + line * DIM + channels, mask=is_channel, other=0.0)
    if NUM_PARTS > 0:
        hidden += sum_of_parts(update_ptr, line, num_lines, channels, is_channel, DIM, NUM_PARTS) * gate
        tl.store(hidden_ptr + line * DIM + channels, hidden, mask=is_channel)
    normed = standardised(hidden, is_channel, DIM, EPS) * scale + shift
    tl.store(out_ptr + line * DIM + channels, normed.to(out_ptr.dtype.element_ty), mask=is_channel)


@triton.jit(do_not_specialize=["num_lines"])
def euler_kernel(
    normed_ptr,  # [C, L, D]
    weight_ptr,  # [80, D]
    bias_ptr,  # [80] float32
    width_ptr,  # [steps] float32
    x_ptr,  # [L, 80] float32, updated in place
    step_ptr,
    num_lines,
    CFG_RATE: tl.constexpr,
    DIM: tl.constexpr,
    MELS: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_M: tl.constexpr,
    NUM_PARTS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """A program: BLOCK_L frames, whosever they are, and BLOCK_M mel bins; both halves of them.

    It multiplies NUM_PARTS stretches of BLOCK_K channels side by side: each warp has products of its own to do.
    """
    lines = tl.program_id(0) * BLOCK_L + tl.arange(0, BLOCK_L)
    mels = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    ks = tl.arange(0, NUM_PARTS)[:, None] * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
    is_line = lines < num_lines
    is_mel = mels < MELS
    weights = weight_ptr + mels[None, :, None] * DIM + ks[:, None, :]
    conditioned_lines = normed_ptr + lines[None, :, None] * DIM + ks[:, None, :]
    unconditioned_lines = conditioned_lines + num_lines * DIM
    conditioned = tl.zeros([NUM_PARTS, BLOCK_L, BLOCK_M], tl.float32)
    unconditioned = tl.zeros([NUM_PARTS, BLOCK_L, BLOCK_M], tl.float32)
    if IS_PDL:
        tl.extra.cuda.gdc_wait()
    for first in tl.range(0, DIM, NUM_PARTS * BLOCK_K, num_stages=NUM_STAGES):
        is_k = (first + ks < DIM)[:, None, :]
        weight = tl.permute(tl.load(weights + first, mask=is_mel[None, :, None] & is_k, other=0.0), (0, 2, 1))
        is_cell = is_line[None, :, None] & is_k
        normed = tl.load(conditioned_lines + first, mask=is_cell, other=0.0)
        conditioned = tl.dot(normed, weight, conditioned, input_precision="ieee")
        normed = tl.load(unconditioned_lines + first, mask=is_cell, other=0.0)
        unconditioned = tl.dot(normed, weight, unconditioned, input_precision="ieee")
    bias = tl.load(bias_ptr + mels, mask=is_mel, other=0.0)[None, :]
    velocity = tl.sum((1 + CFG_RATE) * conditioned - CFG_RATE * unconditioned, axis=0) + bias
    cells = x_ptr + lines[:, None] * MELS + mels[None, :]
    is_cell = is_line[:, None] & is_mel[None, :]
    width = tl.load(width_ptr + tl.load(step_ptr))
    tl.store(cells, tl.load(cells, mask=is_cell) + width * velocity, mask=is_cell)
