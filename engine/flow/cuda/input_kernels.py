"""Triton kernels of the input: projection of x, and the two positional convolutions.

Shapes: C = 2 CFG halves, R rows with L lines in all, D = dim; frame i of row r of half h is line h * L + START[r] + i.
Every per-batch number comes from `rows` (columns: buffers.py) and `step` on the device. Only the CUDA path imports this
module (Triton is optional).
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_rows", "num_lines"])
def project_input_kernel(
    x_ptr,  # [L, 80] float32
    weight_ptr,  # [D, 80]
    base_ptr,  # [L, D] float32
    bias_ptr,  # [D] float32
    hidden_ptr,  # [C, L, D] float32, written
    window1_ptr,  # [C, R, 30 + 50, D], written: history and hidden
    window2_ptr,  # the same of the second convolution: its history is written here
    tails_ptr,  # [blocks, steps, 2, C, 30, D]: the new block's first tail is written
    step_ptr,
    rows_ptr,
    num_rows,
    num_lines,
    ROW_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,  # columns of a row
    NUM_FRAMES: tl.constexpr,
    START: tl.constexpr,
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
    cells = rows_ptr + row * ROW_WIDTH
    num_frames = tl.load(cells + NUM_FRAMES).to(tl.int32)
    frames = tl.arange(0, BLOCK_N)
    mels = tl.arange(0, BLOCK_K)
    channels = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    is_frame = frames < num_frames
    is_channel = channels < DIM
    is_cell = is_frame[:, None] & is_channel[None, :]
    dtype = weight_ptr.dtype.element_ty
    if IS_PDL:
        tl.extra.cuda.gdc_launch_dependents()

    lines = tl.load(cells + START).to(tl.int32) + frames
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
    block = tl.load(cells + BLOCK)
    before = tl.load(cells + BEFORE)
    is_tail = is_cell & (frames >= num_frames - HISTORY)[:, None] & (num_frames == WHOLE_BLOCK)
    past = tl.arange(0, 32)
    is_past = (past < HISTORY)[:, None] & is_channel[None, :]
    past_cells = past[:, None] * DIM + channels[None, :]
    for half in tl.static_range(2):
        hidden = projected + (base if half == 0 else bias[None, :])
        tl.store(hidden_ptr + (half * num_lines + lines)[:, None] * DIM + channels[None, :], hidden, mask=is_cell)
        kept = hidden.to(dtype)
        first = (half * num_rows + row) * (HISTORY + WHOLE_BLOCK) * DIM
        tl.store(window1_ptr + first + (HISTORY + frames)[:, None] * DIM + channels[None, :], kept, mask=is_cell)
        tails = tails_ptr + (block * STEPS + step) * (4 * HISTORY * DIM) + half * HISTORY * DIM
        tl.store(tails + (frames - (num_frames - HISTORY))[:, None] * DIM + channels[None, :], kept, mask=is_tail)
        history = tails_ptr + (before * STEPS + step) * (4 * HISTORY * DIM) + half * HISTORY * DIM
        tl.store(window1_ptr + first + past_cells, tl.load(history + past_cells, mask=is_past), mask=is_past)
        history += 2 * HISTORY * DIM
        tl.store(window2_ptr + first + past_cells, tl.load(history + past_cells, mask=is_past), mask=is_past)


@triton.jit(do_not_specialize=["num_rows", "num_lines"])
def positional_conv_kernel(
    window_ptr,  # [C, R, 30 + 50, D]
    weight_ptr,  # [groups, taps, in, out]
    bias_ptr,  # [D]
    out_ptr,  # IS_LAST: hidden [C, L, D] float32, added to; else the next window, written from frame 30 on
    tails_ptr,  # [blocks, steps, 2, C, 30, D]; not IS_LAST: the new block's second tail is written
    step_ptr,
    rows_ptr,
    num_rows,
    num_lines,
    IS_LAST: tl.constexpr,
    ROW_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    NUM_FRAMES: tl.constexpr,
    START: tl.constexpr,
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
    half = tl.program_id(0) // num_rows
    cells = rows_ptr + (tl.program_id(0) % num_rows) * ROW_WIDTH
    num_frames = tl.load(cells + NUM_FRAMES).to(tl.int32)
    outs_per_group: tl.constexpr = (GROUP + BLOCK_OUT - 1) // BLOCK_OUT
    group = tl.program_id(1) // outs_per_group
    frames = tl.arange(0, BLOCK_N)
    ins = tl.arange(0, BLOCK_IN)
    outs = (tl.program_id(1) % outs_per_group) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    is_frame = frames < num_frames
    is_out = outs < GROUP
    is_in = ins < GROUP

    row_window = tl.program_id(0) * (HISTORY + WHOLE_BLOCK) * DIM
    window = window_ptr + row_window + group * GROUP
    window += frames[:, None] * DIM + ins[None, :]
    weight = weight_ptr + group * (HISTORY + 1) * GROUP * GROUP + ins[:, None] * GROUP + outs[None, :]
    if IS_PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    sums = tl.zeros([BLOCK_N, BLOCK_OUT], tl.float32)
    num_taps = tl.where(num_frames > 0, HISTORY + 1, 0)  # none for a padding row
    for tap in tl.range(0, num_taps, num_stages=NUM_STAGES):
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
        lines = half * num_lines + tl.load(cells + START).to(tl.int32) + frames
        hidden = out_ptr + lines[:, None] * DIM + channels[None, :]
        tl.store(hidden, tl.load(hidden, mask=is_cell) + value, mask=is_cell)
    else:
        kept = value.to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + row_window + (HISTORY + frames)[:, None] * DIM + channels[None, :], kept, mask=is_cell)
        block = tl.load(cells + BLOCK)
        tails = tails_ptr + (block * STEPS + tl.load(step_ptr)) * (4 * HISTORY * DIM) + (2 + half) * HISTORY * DIM
        is_tail = is_cell & (frames >= num_frames - HISTORY)[:, None] & (num_frames == WHOLE_BLOCK)
        tl.store(tails + (frames - (num_frames - HISTORY))[:, None] * DIM + channels[None, :], kept, mask=is_tail)
