"""Triton kernels of the input: projection of x, and the two positional convolutions. See plain_ops.embed.

Shapes: C = 2 CFG halves, B rows, n frames, D = dim; frame i of row b of half h is line (h * B + b) * n + i. Every
per-batch number comes from `rows` (lane.py's columns) and `step` on the device. Only the CUDA path imports this module
(Triton is optional).
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_rows", "num_frames"])
def project_input_kernel(
    x_ptr,  # [B, n, 80] float32
    weight_ptr,  # [D, 80]
    base_ptr,  # [B, n, D] float32
    bias_ptr,  # [D] float32
    hidden_ptr,  # [C, B, n, D] float32, written
    window1_ptr,  # [C, B, 30 + n, D], written: history and hidden
    window2_ptr,  # the same of the second convolution: its history is written here
    tails_ptr,  # [blocks, steps, 2, C, 30, D]: the new block's first tail is written
    step_ptr,
    rows_ptr,
    num_rows,
    num_frames,
    ROW_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,  # columns of a row
    BEFORE: tl.constexpr,
    STEPS: tl.constexpr,
    DIM: tl.constexpr,
    MELS: tl.constexpr,
    HISTORY: tl.constexpr,
    WHOLE_BLOCK: tl.constexpr,  # frames after which a block is complete, so that its tail is kept
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """A program: one row, BLOCK_D channels, both halves (they share x)."""
    row = tl.program_id(0)
    frames = tl.arange(0, BLOCK_N)
    mels = tl.arange(0, BLOCK_K)
    channels = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    is_frame = frames < num_frames
    is_channel = channels < DIM
    is_cell = is_frame[:, None] & is_channel[None, :]
    dtype = weight_ptr.dtype.element_ty
    if IS_PDL:
        tl.extra.cuda.gdc_launch_dependents()

    lines = row * num_frames + frames
    x = tl.load(
        x_ptr + lines[:, None] * MELS + mels[None, :], mask=is_frame[:, None] & (mels < MELS)[None, :], other=0.0
    )
    weight = tl.load(
        weight_ptr + channels[None, :] * MELS + mels[:, None],
        mask=is_channel[None, :] & (mels < MELS)[:, None],
        other=0.0,
    )
    projected = tl.dot(x.to(dtype), weight, input_precision="ieee")
    base = tl.load(base_ptr + lines[:, None] * DIM + channels[None, :], mask=is_cell, other=0.0)
    bias = tl.load(bias_ptr + channels, mask=is_channel, other=0.0)

    step = tl.load(step_ptr)
    block = tl.load(rows_ptr + row * ROW_WIDTH + BLOCK)
    before = tl.load(rows_ptr + row * ROW_WIDTH + BEFORE)
    is_tail = is_cell & (frames >= num_frames - HISTORY)[:, None] & (num_frames == WHOLE_BLOCK)
    past = tl.arange(0, 32)
    is_past = (past < HISTORY)[:, None] & is_channel[None, :]
    past_cells = past[:, None] * DIM + channels[None, :]
    for half in tl.static_range(2):
        hidden = projected + (base if half == 0 else bias[None, :])
        line = half * num_rows + row
        tl.store(hidden_ptr + (line * num_frames + frames)[:, None] * DIM + channels[None, :], hidden, mask=is_cell)
        kept = hidden.to(dtype)
        first = line * (HISTORY + num_frames) * DIM
        tl.store(window1_ptr + first + (HISTORY + frames)[:, None] * DIM + channels[None, :], kept, mask=is_cell)
        tails = tails_ptr + (block * STEPS + step) * (4 * HISTORY * DIM) + half * HISTORY * DIM
        tl.store(tails + (frames - (num_frames - HISTORY))[:, None] * DIM + channels[None, :], kept, mask=is_tail)
        history = tails_ptr + (before * STEPS + step) * (4 * HISTORY * DIM) + half * HISTORY * DIM
        tl.store(window1_ptr + first + past_cells, tl.load(history + past_cells, mask=is_past), mask=is_past)
        history += 2 * HISTORY * DIM
        tl.store(window2_ptr + first + past_cells, tl.load(history + past_cells, mask=is_past), mask=is_past)


@triton.jit(do_not_specialize=["num_rows", "num_frames"])
def positional_conv_kernel(
    window_ptr,  # [C, B, 30 + n, D]
    weight_ptr,  # [groups, taps, in, out]
    bias_ptr,  # [D]
    out_ptr,  # IS_LAST: hidden [C, B, n, D] float32, added to; else the next window, written from frame 30 on
    tails_ptr,  # [blocks, steps, 2, C, 30, D]; not IS_LAST: the new block's second tail is written
    step_ptr,
    rows_ptr,
    num_rows,
    num_frames,
    IS_LAST: tl.constexpr,
    ROW_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
    DIM: tl.constexpr,
    GROUP: tl.constexpr,  # channels of a group
    HISTORY: tl.constexpr,
    WHOLE_BLOCK: tl.constexpr,
    MISH_LIMIT: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """A program: one row of one half, BLOCK_OUT channels of one group; one small product per tap."""
    line = tl.program_id(0)
    outs_per_group: tl.constexpr = (GROUP + BLOCK_OUT - 1) // BLOCK_OUT
    group = tl.program_id(1) // outs_per_group
    frames = tl.arange(0, BLOCK_N)
    ins = tl.arange(0, BLOCK_IN)
    outs = (tl.program_id(1) % outs_per_group) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    is_frame = frames < num_frames
    is_out = outs < GROUP
    is_in = ins < GROUP

    window = window_ptr + line * (HISTORY + num_frames) * DIM + group * GROUP
    window += frames[:, None] * DIM + ins[None, :]
    weight = weight_ptr + group * (HISTORY + 1) * GROUP * GROUP + ins[:, None] * GROUP + outs[None, :]
    if IS_PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    sums = tl.zeros([BLOCK_N, BLOCK_OUT], tl.float32)
    for tap in tl.range(0, HISTORY + 1, num_stages=NUM_STAGES):
        past = tl.load(window + tap * DIM, mask=is_frame[:, None] & is_in[None, :], other=0.0)
        kernel = tl.load(weight + tap * GROUP * GROUP, mask=is_in[:, None] & is_out[None, :], other=0.0)
        sums = tl.dot(past, kernel, sums, input_precision="ieee")

    channels = group * GROUP + outs
    sums += tl.load(bias_ptr + channels, mask=is_out, other=0.0).to(tl.float32)[None, :]
    # Mish without logarithm, as estimator.mish.
    power = tl.exp(tl.minimum(sums, MISH_LIMIT))
    ratio = power * (power + 2)
    value = sums * (ratio / (ratio + 2))
    is_cell = is_frame[:, None] & is_out[None, :]
    if IS_LAST:
        hidden = out_ptr + (line * num_frames + frames)[:, None] * DIM + channels[None, :]
        tl.store(hidden, tl.load(hidden, mask=is_cell) + value, mask=is_cell)
    else:
        kept = value.to(out_ptr.dtype.element_ty)
        first = line * (HISTORY + num_frames) * DIM
        tl.store(out_ptr + first + (HISTORY + frames)[:, None] * DIM + channels[None, :], kept, mask=is_cell)
        half = line // num_rows
        block = tl.load(rows_ptr + (line % num_rows) * ROW_WIDTH + BLOCK)
        tails = tails_ptr + (block * STEPS + tl.load(step_ptr)) * (4 * HISTORY * DIM) + (2 + half) * HISTORY * DIM
        is_tail = is_cell & (frames >= num_frames - HISTORY)[:, None] & (num_frames == WHOLE_BLOCK)
        tl.store(tails + (frames - (num_frames - HISTORY))[:, None] * DIM + channels[None, :], kept, mask=is_tail)
