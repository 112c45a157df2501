"""Triton kernel of attention over a paged context, with rotary before and the write to the pool. See plain_ops.attend.

Shapes: C = 2 CFG halves, B rows, n frames, H heads of d channels; frame i of row b of half h is line
(h * B + b) * n + i. Every per-batch number comes from `rows` (lane.py's columns) and `step` on the device. Only the
CUDA path imports this module (Triton is optional).

Offsets into the pool pass 2**31 elements: block numbers are int64, and so is what they are multiplied with.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def attend_to(queries, keys, values, is_key, highest, total, sums):
    """One tile of keys [K, d] and values into the running softmax (arXiv:2205.14135) of [Q, d]; base 2."""
    scores = tl.dot(queries, tl.trans(keys), input_precision="ieee")
    scores = tl.where(is_key[None, :], scores, float("-inf"))
    new_highest = tl.maximum(highest, tl.max(scores, axis=1) * LOG2_E)
    weights = tl.exp2(scores * LOG2_E - new_highest[:, None])
    rescale = tl.exp2(highest - new_highest)
    total = total * rescale + tl.sum(weights, axis=1)
    sums = tl.dot(weights.to(values.dtype), values, sums * rescale[:, None], input_precision="ieee")
    return new_highest, total, sums


@triton.jit
def rotate(vectors, cosine, sine):
    """Rotary of interleaved pairs: channels (2i, 2i + 1) of [Q, d] by [Q, d / 2]; in float32 whatever the dtype."""
    pairs = tl.reshape(vectors.to(tl.float32), [vectors.shape[0], vectors.shape[1] // 2, 2])
    even, odd = tl.split(pairs)
    turned = tl.join(even * cosine - odd * sine, odd * cosine + even * sine)
    return tl.reshape(turned, vectors.shape).to(vectors.dtype)


@triton.jit(do_not_specialize=["layer", "num_rows", "num_frames"])
def attend_kernel(
    qkv_ptr,  # [C, B, n, 3, H, d]
    out_ptr,  # [C, B, n, H, d]
    pool_ptr,  # [blocks, steps, depth, 2, C * H, 50, d]; the new block's keys and values are written
    cosine_ptr,  # [max_frames, d / 2] float32
    sine_ptr,
    step_ptr,
    rows_ptr,
    layer,
    num_rows,
    num_frames,
    ROW_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,  # columns of a row
    NUM_FRAMES: tl.constexpr,
    NUM_FINISHED: tl.constexpr,
    FIRST_FRAME: tl.constexpr,
    TABLE: tl.constexpr,
    STEPS: tl.constexpr,
    DEPTH: tl.constexpr,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    WHOLE_BLOCK: tl.constexpr,
    BLOCK_Q: tl.constexpr,  # at least n
    BLOCK_K: tl.constexpr,  # finished frames at a time, across blocks' borders
    BLOCK_C: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """A program: one head of one half of one row; its new keys and values come from qkv, never from the pool."""
    head = tl.program_id(0) % HEADS
    half = tl.program_id(0) // HEADS
    row = tl.program_id(1)
    frames = tl.arange(0, BLOCK_Q)
    channels = tl.arange(0, BLOCK_C)
    is_channel = channels < CHANNELS
    is_query = (frames < num_frames)[:, None] & is_channel[None, :]
    # None of these changes within an Euler step, so they need not wait for the product before.
    cells = rows_ptr + row * ROW_WIDTH
    num_valid = tl.load(cells + NUM_FRAMES)
    num_past = tl.load(cells + NUM_FINISHED) * WHOLE_BLOCK
    block = tl.load(cells + BLOCK)
    position = tl.load(cells + FIRST_FRAME) + frames
    step = tl.load(step_ptr)
    # Upstream rotates before it splits heads, and only as many channels as one head has: head 0 alone. The others turn
    # by nothing, which is exact and keeps all loads in flight together.
    pairs = tl.arange(0, BLOCK_C // 2)
    angles = position[:, None] * (CHANNELS // 2) + pairs[None, :]
    is_turned = (frames < num_frames)[:, None] & (pairs < CHANNELS // 2)[None, :] & (head == 0)
    cosine = tl.load(cosine_ptr + angles, mask=is_turned, other=1.0)
    sine = tl.load(sine_ptr + angles, mask=is_turned, other=0.0)
    if IS_PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()

    lines = (half * num_rows + row) * num_frames + frames
    new = qkv_ptr + (lines * (3 * HEADS) + head)[:, None] * CHANNELS + channels[None, :]
    queries = tl.load(new, mask=is_query, other=0.0)
    keys = tl.load(new + HEADS * CHANNELS, mask=is_query, other=0.0)
    values = tl.load(new + 2 * HEADS * CHANNELS, mask=is_query, other=0.0)
    queries = rotate(queries, cosine, sine)
    keys = rotate(keys, cosine, sine)

    tile: tl.constexpr = WHOLE_BLOCK * CHANNELS
    block_stride: tl.constexpr = STEPS * DEPTH * 4 * HEADS * tile
    here = pool_ptr + (step * DEPTH + layer) * (4 * HEADS * tile) + (half * HEADS + head) * tile
    if num_frames == WHOLE_BLOCK:
        mine = here + block * block_stride + frames[:, None] * CHANNELS + channels[None, :]
        is_new = (frames < num_valid)[:, None] & is_channel[None, :]
        tl.store(mine, keys.to(pool_ptr.dtype.element_ty), mask=is_new)
        tl.store(mine + 2 * HEADS * tile, values.to(pool_ptr.dtype.element_ty), mask=is_new)

    highest = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_Q], tl.float32)
    sums = tl.zeros([BLOCK_Q, BLOCK_C], tl.float32)
    highest, total, sums = attend_to(queries, keys, values, frames < num_valid, highest, total, sums)

    for first in tl.range(0, num_past, BLOCK_K, num_stages=NUM_STAGES):
        past = first + tl.arange(0, BLOCK_K)
        is_past = past < num_past
        blocks = tl.load(cells + TABLE + past // WHOLE_BLOCK, mask=is_past, other=0)
        theirs = here + blocks * block_stride + past % WHOLE_BLOCK * CHANNELS
        theirs = theirs[:, None] + channels[None, :]
        is_cell = is_past[:, None] & is_channel[None, :]
        past_keys = tl.load(theirs, mask=is_cell, other=0.0).to(queries.dtype)
        past_values = tl.load(theirs + 2 * HEADS * tile, mask=is_cell, other=0.0).to(queries.dtype)
        highest, total, sums = attend_to(queries, past_keys, past_values, is_past, highest, total, sums)

    out = out_ptr + (lines * HEADS + head)[:, None] * CHANNELS + channels[None, :]
    tl.store(out, (sums / total[:, None]).to(out_ptr.dtype.element_ty), mask=is_query)
