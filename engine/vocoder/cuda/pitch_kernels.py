"""Triton kernels from the streams' mel frames to one excitation level and noise gain a frame.

Float64 wherever the phase sums what is made, float32 where upstream rounds: an ulp here is radians after minutes.
Only the CUDA path imports this module (Triton is optional).
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl

from voicegate.engine.vocoder.cuda import rows
from voicegate.engine.vocoder.cuda.conv_kernel import as_operand

_FIELDS: tl.constexpr = tl.constexpr(rows.NUM_FIELDS)
_SLOT: tl.constexpr = tl.constexpr(rows.SLOT_FIELD)
_FRAMES: tl.constexpr = tl.constexpr(rows.FRAMES_FIELD)
_LOOKAHEAD: tl.constexpr = tl.constexpr(rows.LOOKAHEAD_FIELD)
_NEW: tl.constexpr = tl.constexpr(rows.NEW_FIELD)
_ADDRESS: tl.constexpr = tl.constexpr(rows.ADDRESS_FIELD)
_BAND_STRIDE: tl.constexpr = tl.constexpr(rows.BAND_STRIDE_FIELD)
_FRAME_STRIDE: tl.constexpr = tl.constexpr(rows.FRAME_STRIDE_FIELD)


@triton.jit
def gather_mel_kernel(
    lookahead_ptr,  # [slots, state numbers] float64: a slot's known frames [4, 80] begin at `lookahead_start`
    exact_ptr,  # [streams, columns, 80] float64
    operand_ptr,  # [streams, columns, channels]
    rows_ptr,
    state_numbers,
    lookahead_start,
    exact_stream,
    operand_stream,
    NUM_BANDS: tl.constexpr,
    CHANNELS: tl.constexpr,  # a power of two
    ROUND_TF32: tl.constexpr,
):
    """One column: a frame that the slot knows, a new one, or the zeros that follow an utterance's last."""
    column = tl.program_id(0)
    stream = tl.program_id(1)
    row = rows_ptr + stream * _FIELDS
    num_lookahead = tl.load(row + _LOOKAHEAD)
    bands = tl.arange(0, CHANNELS)
    is_band = bands < NUM_BANDS
    is_old = column < num_lookahead
    is_new = (column >= num_lookahead) & (column < num_lookahead + tl.load(row + _NEW))
    known = lookahead_ptr + tl.load(row + _SLOT) * state_numbers + lookahead_start + column * NUM_BANDS
    old = tl.load(known + bands, mask=is_band & is_old, other=0.0)
    mel = tl.load(row + _ADDRESS).to(tl.pointer_type(tl.float32))
    mel += (column - num_lookahead) * tl.load(row + _FRAME_STRIDE)
    new = tl.load(mel + bands * tl.load(row + _BAND_STRIDE), mask=is_band & is_new, other=0.0)
    exact = old + new.to(tl.float64)  # one of them is zero
    tl.store(exact_ptr + stream * exact_stream + column * NUM_BANDS + bands, exact, mask=is_band)
    operand = operand_ptr + stream * operand_stream + column * CHANNELS + bands
    tl.store(operand, as_operand(exact.to(tl.float32), operand_ptr.dtype.element_ty, ROUND_TF32))


@triton.jit
def _elu_of_taps(
    products_ptr, bias_ptr, row_index, tap_numbers, channels, NUM_TAPS: tl.constexpr, NUM_CHANNELS: tl.constexpr
):
    sums = tl.load(bias_ptr + channels, mask=channels < NUM_CHANNELS, other=0.0)
    for tap in tl.static_range(NUM_TAPS):
        at = products_ptr + tap * tap_numbers + row_index * NUM_CHANNELS + channels
        sums += tl.load(at, mask=channels < NUM_CHANNELS, other=0.0)
    return tl.where(sums > 0, sums, tl.exp(sums) - 1)


@triton.jit
def pitch_layer_kernel(
    products_ptr,  # [taps, streams * columns_in (less the last taps - 1), channels] float64: a product for each tap
    bias_ptr,
    out_ptr,  # [streams, columns_out, channels] float64
    rows_ptr,
    tap_numbers,  # from a tap's products to the next one's
    columns_in,
    columns_out,
    margin,  # columns of out's tail
    NUM_TAPS: tl.constexpr,
    NUM_CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The sum over a layer's taps, ELU -> the next layer's input."""
    column = tl.program_id(0)
    stream = tl.program_id(1)
    frames = tl.load(rows_ptr + stream * _FIELDS + _FRAMES)
    if (column > frames) | (frames == 0):
        return
    channels = tl.arange(0, BLOCK)
    active = _elu_of_taps(
        products_ptr, bias_ptr, stream * columns_in + column, tap_numbers, channels, NUM_TAPS, NUM_CHANNELS
    )
    at = out_ptr + (stream * columns_out + margin + column) * NUM_CHANNELS + channels
    tl.store(at, active, mask=channels < NUM_CHANNELS)


@triton.jit
def pitch_head_kernel(
    products_ptr,
    bias_ptr,
    classifier_ptr,  # [channels] float64
    classifier_bias_ptr,  # [1] float64
    pitch_ptr,  # [streams, columns] float32
    rows_ptr,
    tap_numbers,
    columns_in,
    columns,
    NUM_TAPS: tl.constexpr,
    NUM_CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The last layer, and from it the frame's pitch in Hz."""
    column = tl.program_id(0)
    stream = tl.program_id(1)
    frames = tl.load(rows_ptr + stream * _FIELDS + _FRAMES)
    if (column > frames) | (frames == 0):
        return
    channels = tl.arange(0, BLOCK)
    active = _elu_of_taps(
        products_ptr, bias_ptr, stream * columns_in + column, tap_numbers, channels, NUM_TAPS, NUM_CHANNELS
    )
    classifier = tl.load(classifier_ptr + channels, mask=channels < NUM_CHANNELS, other=0.0)
    pitch = tl.abs(tl.sum(active * classifier) + tl.load(classifier_bias_ptr))
    tl.store(pitch_ptr + stream * columns + column, pitch.to(tl.float32))


@triton.jit
def source_frames_kernel(
    pitch_ptr,  # [streams, columns] float32, Hz
    cycles_ptr,  # [streams, 1 + columns, 16] float64: running sums of cycles per sample, the stream's so far first
    levels_ptr,  # [streams, 1 + columns, 2] float32: a frame's excitation without noise, and its noise gain
    merge_ptr,  # [harmonics] float32
    merge_bias_ptr,
    rows_ptr,
    columns,
    sample_rate_hz,
    samples_per_frame,
    sine_amplitude,
    noise_std,
    voiced_threshold_hz,
    NUM_HARMONICS: tl.constexpr,
    BLOCK_FRAMES: tl.constexpr,
):
    """source.HarmonicSource.frames and the merge of its sines: the same operations in the same order."""
    stream = tl.program_id(0)
    frames = tl.load(rows_ptr + stream * _FIELDS + _FRAMES)
    if frames == 0:
        return
    frame = tl.arange(0, BLOCK_FRAMES)
    harmonic = tl.arange(0, 16)
    is_frame = frame <= frames
    pitch = tl.load(pitch_ptr + stream * columns + frame, mask=is_frame, other=0.0)
    per_sample = tl.div_rn(pitch[:, None] * (harmonic + 1).to(tl.float32)[None, :], sample_rate_hz)
    per_sample -= tl.floor(per_sample)
    own = cycles_ptr + stream * (columns + 1) * 16
    cycles = tl.cumsum(per_sample.to(tl.float64), 0) + tl.load(own + harmonic)[None, :]
    at = own + (frame[:, None] + 1) * 16 + harmonic[None, :]
    tl.store(at, cycles, mask=is_frame[:, None])
    phase = cycles.to(tl.float32) * 2 * 3.141592653589793 * samples_per_frame
    sine = tl.sin(phase.to(tl.float64)).to(tl.float32)  # thousands of turns: the float32 sine is not for that
    voiced = (pitch > voiced_threshold_hz).to(tl.float32)
    merge = tl.load(merge_ptr + harmonic, mask=harmonic < NUM_HARMONICS, other=0.0)
    level = tl.sum(sine * sine_amplitude * voiced[:, None] * merge[None, :], 1) + tl.load(merge_bias_ptr)
    gain = voiced * noise_std + (1 - voiced) * sine_amplitude / 3
    out = levels_ptr + (stream * (columns + 1) + 1 + frame) * 2
    tl.store(out, level, mask=is_frame)
    tl.store(out + 1, gain, mask=is_frame)
