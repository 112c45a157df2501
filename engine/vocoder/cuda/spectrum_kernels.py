"""Triton kernels at the filter's two ends: excitation -> spectra, a stage's input from its two branches, and
spectra -> samples. They see the edges of a signal; between them all columns are alike.

Only the CUDA path imports this module (Triton is optional).
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl

from voicegate.engine.vocoder.cuda import rows
from voicegate.engine.vocoder.cuda.conv_kernel import as_operand, fast_cos, fast_sin, snake

_FIELDS: tl.constexpr = tl.constexpr(rows.NUM_FIELDS)
_FRAMES: tl.constexpr = tl.constexpr(rows.FRAMES_FIELD)
_FIRST: tl.constexpr = tl.constexpr(rows.FIRST_FIELD)
_FINAL: tl.constexpr = tl.constexpr(rows.FINAL_FIELD)
_START: tl.constexpr = tl.constexpr(rows.START_FIELD)


@triton.jit
def analysis_kernel(
    levels_ptr,  # [streams, 1 + frames, 2] float32, the frame before first
    noise_ptr,  # one number a sample of an utterance
    basis_ptr,  # [16, channels] float32, window included
    spectra_ptr,  # [streams, columns, channels]
    rows_ptr,
    levels_stream,
    spectra_stream,
    samples_per_frame,
    columns_per_frame,
    CHANNELS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    ROUND_TF32: tl.constexpr,
):
    """Column j is the spectrum of samples 4j - 8 .. 4j + 7, made here and mirrored at the signal's two ends."""
    stream = tl.program_id(1)
    row = rows_ptr + stream * _FIELDS
    frames = tl.load(row + _FRAMES).to(tl.int32)
    num_columns = tl.where(frames > 0, frames * columns_per_frame + 1, 0)
    first_column = tl.program_id(0) * BLOCK_M
    if first_column >= num_columns:
        return
    columns = first_column + tl.arange(0, BLOCK_M)
    is_column = (columns < num_columns)[:, None]
    taps = tl.arange(0, 16)
    sample = columns[:, None] * 4 - 8 + taps[None, :]
    is_first = tl.load(row + _FIRST) != 0
    sample = tl.where((sample < 0) & is_first, -sample, sample)
    end = frames * samples_per_frame
    is_final = tl.load(row + _FINAL) != 0
    sample = tl.where((sample >= end) & is_final, 2 * (end - 1) - sample, sample)
    level = levels_ptr + stream * levels_stream + ((sample + samples_per_frame) // samples_per_frame) * 2
    start = tl.load(row + _START) * samples_per_frame
    noise = tl.load(noise_ptr + start + sample, mask=is_column, other=0.0)
    merged = tl.load(level, mask=is_column, other=0.0) + tl.load(level + 1, mask=is_column, other=0.0) * noise
    excitation = 1 - 2 / (tl.exp(2 * merged) + 1)  # tanh
    channels = tl.arange(0, CHANNELS)
    basis = tl.load(basis_ptr + taps[:, None] * CHANNELS + channels[None, :])
    spectra = tl.dot(excitation, basis, input_precision="ieee")
    at = spectra_ptr + stream.to(tl.int64) * spectra_stream + columns[:, None] * CHANNELS + channels[None, :]
    tl.store(at, as_operand(spectra, spectra_ptr.dtype.element_ty, ROUND_TF32), mask=is_column)


@triton.jit(do_not_specialize=["rate", "extra"])
def join_kernel(
    up_ptr,  # [streams, HAS_EDGE + columns, channels] float32
    source_ptr,  # [streams, columns + HAS_EDGE, channels] float32
    x_ptr,  # like source
    active_ptr,  # [blocks, streams, columns, channels]: each resblock's first input
    alpha_ptr,  # [blocks, channels] float32
    inverse_alpha_ptr,
    rows_ptr,
    up_stream,
    source_stream,
    active_stream,
    active_block,
    rate,
    extra,
    NUM_BLOCKS: tl.constexpr,
    HAS_EDGE: tl.constexpr,  # a column precedes the upsampled ones: the one before, or at the start column 1 mirrored
    CHANNELS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    ROUND_TF32: tl.constexpr,
    IS_FAST: tl.constexpr,
):
    stream = tl.program_id(1)
    row = rows_ptr + stream * _FIELDS
    frames = tl.load(row + _FRAMES).to(tl.int32)
    num_columns = tl.where(frames > 0, frames * rate + extra, 0)
    first_column = tl.program_id(0) * BLOCK_M
    if first_column >= num_columns:
        return
    columns = first_column + tl.arange(0, BLOCK_M)
    is_column = (columns < num_columns)[:, None]
    channels = tl.arange(0, CHANNELS)
    origin = columns
    if HAS_EDGE:
        is_first = tl.load(row + _FIRST) != 0
        origin = tl.where((columns == 0) & is_first, 2, columns)
    at = columns[:, None] * CHANNELS + channels[None, :]
    up = up_ptr + stream.to(tl.int64) * up_stream + origin[:, None] * CHANNELS + channels[None, :]
    x = tl.load(up, mask=is_column, other=0.0)
    x += tl.load(source_ptr + stream.to(tl.int64) * source_stream + at, mask=is_column, other=0.0)
    tl.store(x_ptr + stream.to(tl.int64) * source_stream + at, x, mask=is_column)
    for block in tl.static_range(NUM_BLOCKS):
        alpha = tl.load(alpha_ptr + block * CHANNELS + channels)[None, :]
        inverse_alpha = tl.load(inverse_alpha_ptr + block * CHANNELS + channels)[None, :]
        active = as_operand(snake(x, alpha, inverse_alpha, IS_FAST), active_ptr.dtype.element_ty, ROUND_TF32)
        out = active_ptr + block * active_block + stream.to(tl.int64) * active_stream
        tl.store(out + at, active, mask=is_column)


@triton.jit
def _sine(x, IS_FAST: tl.constexpr):
    return fast_sin(x) if IS_FAST else tl.sin(x)


@triton.jit
def _cosine(x, IS_FAST: tl.constexpr):
    return fast_cos(x) if IS_FAST else tl.cos(x)


@triton.jit
def synthesis_kernel(
    spectra_ptr,  # [streams, 2 + columns, channels] float32: 9 log-magnitudes, 9 phase inputs
    basis_ptr,  # [4, 2, 16, 16] float32: frames of a block, real and imaginary, bins, samples of a block
    gains_ptr,  # [2, 16] float32: of the blocks at the two ends that lack a frame
    samples_ptr,  # [streams, samples] float32
    rows_ptr,
    spectra_stream,
    samples_stream,
    columns_per_frame,
    audio_limit,
    CHANNELS: tl.constexpr,
    NUM_BINS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    IS_FAST: tl.constexpr,
):
    """Block q, samples 4q - 4 .. 4q - 1 of the call, is a quarter of each of the four frames that overlap there."""
    stream = tl.program_id(1)
    row = rows_ptr + stream * _FIELDS
    frames = tl.load(row + _FRAMES).to(tl.int32)
    num_blocks = tl.where(frames > 0, frames * columns_per_frame + 1, 0)
    first_block = tl.program_id(0) * BLOCK_M
    if first_block >= num_blocks:
        return
    is_first = tl.load(row + _FIRST) != 0
    blocks = first_block + tl.arange(0, BLOCK_M)
    bins = tl.arange(0, 16)
    samples = tl.arange(0, 16)
    spectra = spectra_ptr + stream.to(tl.int64) * spectra_stream
    sums = tl.zeros([BLOCK_M, 16], tl.float32)
    for part in tl.static_range(4):
        columns = blocks + part
        # At an utterance's start no frame lies before; beyond a stream's last lies none that is made.
        exists = (columns < num_blocks + 2) & ((columns >= 2) | (is_first == 0))
        mask = exists[:, None] & (bins < NUM_BINS)[None, :]
        at = spectra + columns[:, None] * CHANNELS + bins[None, :]
        magnitude = tl.minimum(tl.exp(tl.load(at, mask=mask, other=0.0)), 100.0)
        phase = _sine(tl.load(at + NUM_BINS, mask=mask, other=0.0), IS_FAST)
        real = tl.where(mask, magnitude * _cosine(phase, IS_FAST), 0.0)
        imaginary = tl.where(mask, magnitude * _sine(phase, IS_FAST), 0.0)
        basis = basis_ptr + part * 512 + bins[:, None] * 16 + samples[None, :]
        sums = tl.dot(real, tl.load(basis), sums, input_precision="ieee")
        sums = tl.dot(imaginary, tl.load(basis + 256), sums, input_precision="ieee")
    first_gain = tl.load(gains_ptr + samples)[None, :]
    last_gain = tl.load(gains_ptr + 16 + samples)[None, :]
    sums = tl.where((blocks == 1)[:, None] & is_first, sums * first_gain, sums)
    sums = tl.where((blocks == num_blocks - 1)[:, None], sums * last_gain, sums)
    sums = tl.minimum(tl.maximum(sums, -audio_limit), audio_limit)
    out = samples_ptr + stream * samples_stream + blocks[:, None] * 4 + samples[None, :]
    tl.store(out, sums, mask=(blocks < num_blocks)[:, None] & (samples < 4)[None, :])
