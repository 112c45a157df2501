"""Triton kernel of every convolution: a matrix product over taps and channels, with what follows it fused in.

Activations are channels last, [streams, columns, channels]; a layer's buffer begins with its tail of the call before,
so a left-looking convolution is a product over shifted rows of one buffer and nothing is padded or concatenated; one
that looks both ways is too, with a margin of zeros on either side.
The product is [outputs, channels] x [channels, columns]: the matrix units take 64 rows at a time but many more columns,
and read the least from shared memory where the few outputs are the rows.
Only the CUDA path imports this module (Triton is optional).
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call, misc"

from typing import Final

import triton
import triton.language as tl

from voicegate.engine.vocoder.cuda import rows

# Ways of a convolution's sum to the next layer's input.
NO_ACTIVATION: Final = 0
SNAKE: Final = 1
LEAKY: Final = 2

_SNAKE: tl.constexpr = tl.constexpr(SNAKE)
_LEAKY: tl.constexpr = tl.constexpr(LEAKY)
_FIELDS: tl.constexpr = tl.constexpr(rows.NUM_FIELDS)
_FRAMES: tl.constexpr = tl.constexpr(rows.FRAMES_FIELD)


@triton.jit
def fast_sin(x):
    """The hardware's sine: wrong by 5e-7 within a half turn of zero, then by 6e-8 of the angle."""
    return tl.inline_asm_elementwise("sin.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def fast_cos(x):
    """As exact as fast_sin."""
    return tl.inline_asm_elementwise("cos.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def snake(x, alpha, inverse_alpha, IS_FAST: tl.constexpr):
    angle = x * alpha
    sine = fast_sin(angle) if IS_FAST else tl.sin(angle)
    return x + sine * sine * inverse_alpha


@triton.jit
def as_operand(x, dtype, ROUND_TF32: tl.constexpr):
    """float32 -> what the matrix units read. float16 saturates: an overflow would become NaN in the next layer."""
    if ROUND_TF32:
        # The units drop the low 13 bits; adding half of their range first makes that rounding.
        return ((x.to(tl.uint32, bitcast=True) + 0x1000) & 0xFFFFE000).to(tl.float32, bitcast=True)
    if dtype == tl.float16:
        return tl.minimum(tl.maximum(x, -65504.0), 65504.0).to(tl.float16)
    return x.to(dtype)


@triton.jit
def _halves(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    return x.reshape(ROWS, 2, COLUMNS // 2).permute(0, 2, 1).split()


@triton.jit
def _slices(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr, NUM_SLICES: tl.constexpr):
    """x [rows, columns] -> 1, 2 or 4 tensors [rows, columns / slices], from left to right."""
    slices = (x,)
    if NUM_SLICES > 1:
        slices = _halves(x, ROWS, COLUMNS)
    if NUM_SLICES > 2:
        slices = _halves(slices[0], ROWS, COLUMNS // 2) + _halves(slices[1], ROWS, COLUMNS // 2)
    return slices


@triton.jit
def _bounds(block, taps_0, taps_1, taps_2):
    """Where a block's taps lie among those of all: the first, and the first after it."""
    begin = tl.where(block == 0, 0, tl.where(block == 1, taps_0, taps_0 + taps_1))
    end = tl.where(block == 0, taps_0, tl.where(block == 1, taps_0 + taps_1, taps_0 + taps_1 + taps_2))
    return begin, end


@triton.jit
def _product(
    sums,
    x_ptrs,  # of the first chunk of column 0
    w_ptrs,
    begin,  # of the taps
    end,
    block,
    x_block,
    channel_shift,
    channels,
    origin,
    dilation,
    taps_0,
    taps_1,
    taps_2,
    IS_SUM: tl.constexpr,
    IS_CENTRED: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """sums [outputs, columns] and what these taps add, a chunk of channels a step."""
    for step in range(begin << channel_shift, end << channel_shift):
        tap = step >> channel_shift
        source = block
        oldest, behind = begin, end
        if IS_SUM:
            source = (tap >= taps_0).to(tl.int32) + (tap >= taps_0 + taps_1).to(tl.int32)
            oldest, behind = _bounds(source, taps_0, taps_1, taps_2)
        anchor = behind - 1
        if IS_CENTRED:
            anchor = (oldest + anchor) >> 1
        column = origin + (tap - anchor) * dilation
        chunk = step - (tap << channel_shift)
        x = tl.load(x_ptrs + (source.to(tl.int64) * x_block + (column * channels + chunk * BLOCK_K)))
        w = tl.load(w_ptrs + step * BLOCK_K)
        sums = tl.dot(w, x, sums, input_precision=PRECISION)
    return sums


@triton.jit
def _completed(
    own,
    at,  # where each lies in its stream's output
    is_column,
    bias_ptr,  # of these outputs
    residual_ptr,  # of this stream
    block,
    residual_block,
    num_outputs,
    scale,
    NUM_BLOCKS: tl.constexpr,
    IS_SUM: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
):
    """Sums [outputs, columns] with their biases and residuals."""
    if IS_SUM:
        # Not unrolled: fewer programs would share a multiprocessor.
        for each in tl.range(0, NUM_BLOCKS, num_stages=1, loop_unroll_factor=1):
            own += tl.load(bias_ptr + each * num_outputs)[:, None]
            if HAS_RESIDUAL:
                own += tl.load(residual_ptr + each * residual_block + at, mask=is_column, other=0.0)
        own *= scale
    else:
        own += tl.load(bias_ptr + block * num_outputs)[:, None]
        if HAS_RESIDUAL:
            own += tl.load(residual_ptr + block.to(tl.int64) * residual_block + at, mask=is_column, other=0.0)
    return own


@triton.jit
def _activated(
    own,
    alpha_ptr,  # of these outputs
    inverse_alpha_ptr,
    slope,
    ACTIVATION: tl.constexpr,
    IS_FAST: tl.constexpr,
):
    if ACTIVATION == _SNAKE:
        own = snake(own, tl.load(alpha_ptr)[:, None], tl.load(inverse_alpha_ptr)[:, None], IS_FAST)
    if ACTIVATION == _LEAKY:
        own = tl.where(own > 0, own, own * slope)
    return own


# Numbers that differ from layer to layer but change nothing in the code: one compilation serves them all.
_UNSPECIALIZED: Final = (
    "channel_shift",
    "origin",
    "dilation",
    "rate",
    "extra",
    "slope",
    "scale",
    "taps_0",
    "taps_1",
    "taps_2",
)


@triton.jit(do_not_specialize=_UNSPECIALIZED)
def conv_kernel(
    x_ptr,  # [blocks, streams, buffer columns, channels]
    w_ptr,  # [outputs, taps of all blocks, channels]
    bias_ptr,  # [blocks, outputs] float32
    residual_ptr,  # [blocks or 1, streams, columns, outputs] float32
    raw_ptr,  # [blocks, streams, columns, outputs] float32
    active_ptr,  # [blocks, streams, columns, outputs]
    alpha_ptr,  # [blocks, outputs] float32
    inverse_alpha_ptr,
    rows_ptr,  # [streams, fields] int64
    num_outputs,
    channel_shift,  # log2 of BLOCK_K chunks in the channels
    channels,
    column_step,  # channels * stride: from an output column's input to the next one's
    origin,  # buffer column that the newest tap of output column 0 reads; the middle one if IS_CENTRED
    dilation,
    x_stream,
    x_block,
    residual_stream,
    residual_block,
    raw_stream,
    raw_block,
    active_stream,
    active_block,
    rate,  # output columns per mel frame
    extra,  # output columns beyond them
    slope,
    scale,
    taps_0,
    taps_1,
    taps_2,
    NUM_BLOCKS: tl.constexpr,
    IS_SUM: tl.constexpr,  # all blocks into one output, scaled; else one output a block
    IS_CENTRED: tl.constexpr,  # taps lie to both sides of their output alike; each block has an odd number
    HAS_RESIDUAL: tl.constexpr,
    HAS_RAW: tl.constexpr,
    ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr,  # columns
    BLOCK_N: tl.constexpr,  # outputs
    BLOCK_K: tl.constexpr,
    NUM_SLICES: tl.constexpr,
    PRECISION: tl.constexpr,
    ROUND_TF32: tl.constexpr,
    IS_FAST: tl.constexpr,
):
    stream = tl.program_id(1)
    frames = tl.load(rows_ptr + stream * _FIELDS + _FRAMES).to(tl.int32)
    num_columns = tl.where(frames > 0, frames * rate + extra, 0)
    tiles_n = num_outputs // BLOCK_N
    first_column = (tl.program_id(0) // tiles_n) * BLOCK_M
    if first_column >= num_columns:
        return
    first_output = (tl.program_id(0) % tiles_n) * BLOCK_N
    block = tl.program_id(2)
    all_taps = taps_0 + taps_1 + taps_2
    begin = 0
    end = all_taps
    if not IS_SUM and NUM_BLOCKS > 1:
        begin, end = _bounds(block, taps_0, taps_1, taps_2)
    columns = first_column + tl.arange(0, BLOCK_M)
    outputs = first_output + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    sums = _product(
        tl.zeros([BLOCK_N, BLOCK_M], tl.float32),
        x_ptr + stream.to(tl.int64) * x_stream + (columns[None, :] * column_step + ks[:, None]),
        w_ptr + (outputs[:, None] * (all_taps << channel_shift) * BLOCK_K + ks[None, :]),
        *(begin, end, block, x_block, channel_shift, channels, origin, dilation, taps_0, taps_1, taps_2),
        *(IS_SUM, IS_CENTRED, BLOCK_K, PRECISION),
    )
    # Slice by slice: with all residuals and addresses in registers at once, fewer programs share a multiprocessor.
    slices = _slices(sums, BLOCK_N, BLOCK_M, NUM_SLICES)
    residual = residual_ptr + stream.to(tl.int64) * residual_stream
    raw = raw_ptr + block.to(tl.int64) * raw_block + stream.to(tl.int64) * raw_stream
    active = active_ptr + block.to(tl.int64) * active_block + stream.to(tl.int64) * active_stream
    factors = block * num_outputs + outputs
    for number in tl.static_range(NUM_SLICES):
        own_columns = first_column + number * (BLOCK_M // NUM_SLICES) + tl.arange(0, BLOCK_M // NUM_SLICES)
        is_column = (own_columns < num_columns)[None, :]
        at = own_columns[None, :] * num_outputs + outputs[:, None]
        own = _completed(
            *(slices[number], at, is_column, bias_ptr + outputs, residual, block, residual_block, num_outputs, scale),
            *(NUM_BLOCKS, IS_SUM, HAS_RESIDUAL),
        )
        if HAS_RAW:
            tl.store(raw + at, own, mask=is_column)
        if ACTIVATION != 0:
            own = _activated(own, alpha_ptr + factors, inverse_alpha_ptr + factors, slope, ACTIVATION, IS_FAST)
            tl.store(active + at, as_operand(own, active_ptr.dtype.element_ty, ROUND_TF32), mask=is_column)
