"""Triton kernels before each causal convolution of an Euler step: norm, and the frames that its product multiplies.

Shapes: C = 2 CFG halves, B rows of n frames, D = dim; a line is a frame of a row of a half. The product of a frame
reads it and the two before it as one piece: taps [C * B * n, 3 * D], oldest first, so that it is a product like any
other. Only the CUDA path imports this module (Triton is optional).
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl

from voicegate.engine.flow.cuda.line_kernels import standardised, sum_of_parts


@triton.jit
def write_taps(
    values,  # of one line
    taps_ptr,
    tails_ptr,  # [TAPS - 1, D]: what lies before the row's first frame; what lies before its next chunk's is left there
    frame,
    num_own,  # frames of the row, 0 in a padding row
    line,
    num_frames,
    channels,
    is_channel,
    DIM: tl.constexpr,
    TAPS: tl.constexpr,
):
    """A line to where it is a tap. Who leaves a tail takes the one before it: else one program would race another."""
    kept = values.to(taps_ptr.dtype.element_ty)
    for ahead in tl.static_range(TAPS):
        tap = taps_ptr + (line + ahead) * (TAPS * DIM) + (TAPS - 1 - ahead) * DIM
        tl.store(tap + channels, kept, mask=is_channel & (frame + ahead < num_frames))
    tail = frame - (num_own - (TAPS - 1))
    if (tail >= 0) & (frame < num_own):
        tails = tails_ptr + tail * DIM + channels
        before = tl.load(tails, mask=is_channel, other=0.0)
        first = taps_ptr + (line - frame) * (TAPS * DIM)
        for ahead in tl.static_range(TAPS - 1):
            tap = first + ahead * (TAPS * DIM) + (tail - ahead) * DIM
            tl.store(tap + channels, before, mask=is_channel & (ahead <= tail))
        tl.store(tails, kept, mask=is_channel)


@triton.jit
def tails_of(
    tails_ptr,  # [B, steps, depth, convolutions, C, TAPS - 1, D]
    row,
    step,
    layer,
    half,
    CONV: tl.constexpr,
    STEPS: tl.constexpr,
    DEPTH: tl.constexpr,
    DIM: tl.constexpr,
    TAPS: tl.constexpr,
):
    """Where they lie for one half of a row. `step` is int64, and so is what it is multiplied with."""
    first = ((row * STEPS + step) * DEPTH + layer) * 2 + CONV
    return tails_ptr + (first * 2 + half) * ((TAPS - 1) * DIM)


@triton.jit(do_not_specialize=["gate_row", "scale_row", "layer", "num_rows", "num_frames"])
def norm_taps_kernel(
    hidden_ptr,  # [C, B, n, D] float32, updated in place
    update_ptr,  # [parts, C, B, n, D]
    modulation_ptr,  # [steps, table rows, D] float32; a shift follows its scale
    taps_ptr,
    tails_ptr,
    num_tokens_ptr,
    step_ptr,
    gate_row,
    scale_row,
    layer,
    num_rows,
    num_frames,
    COUNT_STRIDE: tl.constexpr,
    FRAMES_PER_TOKEN: tl.constexpr,
    NUM_PARTS: tl.constexpr,
    STEPS: tl.constexpr,
    TABLE_ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    DIM: tl.constexpr,
    TAPS: tl.constexpr,
    EPS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """Gate and residual, the convolution's modulated norm, its taps. A program: one line."""
    frame = tl.program_id(0)
    half, row = tl.program_id(1) // num_rows, tl.program_id(1) % num_rows
    channels = tl.arange(0, BLOCK_D)
    is_channel = channels < DIM
    step = tl.load(step_ptr)
    modulation = modulation_ptr + step * (TABLE_ROWS * DIM) + channels
    scale = tl.load(modulation + scale_row * DIM, mask=is_channel, other=0.0)
    shift = tl.load(modulation + (scale_row + 1) * DIM, mask=is_channel, other=0.0)
    gate = tl.load(modulation + gate_row * DIM, mask=is_channel, other=0.0)
    num_own = tl.load(num_tokens_ptr + row * COUNT_STRIDE).to(tl.int32) * FRAMES_PER_TOKEN
    line = tl.program_id(1).to(tl.int64) * num_frames + frame
    num_lines = 2 * num_rows * num_frames
    if IS_PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    hidden = tl.load(hidden_ptr + line * DIM + channels, mask=is_channel, other=0.0)
    hidden += sum_of_parts(update_ptr, line, num_lines, channels, is_channel, DIM, NUM_PARTS) * gate
    tl.store(hidden_ptr + line * DIM + channels, hidden, mask=is_channel)
    normed = standardised(hidden, is_channel, DIM, EPS) * scale + shift
    tails = tails_of(tails_ptr, row, step, layer, half, 0, STEPS, DEPTH, DIM, TAPS)
    write_taps(normed, taps_ptr, tails, frame, num_own, line, num_frames, channels, is_channel, DIM, TAPS)


@triton.jit(do_not_specialize=["layer", "num_rows", "num_frames"])
def mish_taps_kernel(
    convolved_ptr,  # [parts, C, B, n, D]
    weight_ptr,  # [D]
    bias_ptr,
    taps_ptr,
    tails_ptr,
    num_tokens_ptr,
    step_ptr,
    layer,
    num_rows,
    num_frames,
    COUNT_STRIDE: tl.constexpr,
    FRAMES_PER_TOKEN: tl.constexpr,
    NUM_PARTS: tl.constexpr,
    STEPS: tl.constexpr,
    DEPTH: tl.constexpr,
    DIM: tl.constexpr,
    TAPS: tl.constexpr,
    EPS: tl.constexpr,
    MISH_LIMIT: tl.constexpr,
    BLOCK_D: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """Output of the first convolution: layer norm, Mish, and the second one's taps. A program: one line."""
    frame = tl.program_id(0)
    half, row = tl.program_id(1) // num_rows, tl.program_id(1) % num_rows
    channels = tl.arange(0, BLOCK_D)
    is_channel = channels < DIM
    step = tl.load(step_ptr)
    weight = tl.load(weight_ptr + channels, mask=is_channel, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + channels, mask=is_channel, other=0.0).to(tl.float32)
    num_own = tl.load(num_tokens_ptr + row * COUNT_STRIDE).to(tl.int32) * FRAMES_PER_TOKEN
    line = tl.program_id(1).to(tl.int64) * num_frames + frame
    num_lines = 2 * num_rows * num_frames
    if IS_PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    convolved = sum_of_parts(convolved_ptr, line, num_lines, channels, is_channel, DIM, NUM_PARTS)
    normed = standardised(convolved, is_channel, DIM, EPS) * weight + bias
    # Mish without logarithm: tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2).
    power = tl.exp(tl.minimum(normed, MISH_LIMIT))
    ratio = power * (power + 2)
    tails = tails_of(tails_ptr, row, step, layer, half, 1, STEPS, DEPTH, DIM, TAPS)
    value = normed * (ratio / (ratio + 2))
    write_taps(value, taps_ptr, tails, frame, num_own, line, num_frames, channels, is_channel, DIM, TAPS)
