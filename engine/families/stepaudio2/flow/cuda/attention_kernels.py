"""Triton kernel of attention over what a stream remembers, where it lies: with its heads' norms and the memory's write.

Shapes: C = 2 CFG halves, B rows of n frames, H heads of d channels; a line is a frame of a row of a half. How many
frames a row has and sees, and where they lie, is read on the device. Only the CUDA path imports this module (Triton is
optional).

Offsets into the memory pass 2**31 elements: places and the step are int64, and so is what they are multiplied with.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl

from voicegate.engine.flow.cuda.attention_kernels import attend_to, beside, keep


@triton.jit
def normed_heads(heads, weight, bias, is_channel, CHANNELS: tl.constexpr, EPS: tl.constexpr):
    """Layer norm of each line of [L, d], whose masked channels are 0; in float32, masked channels 0 again."""
    heads = heads.to(tl.float32)
    mean = tl.sum(heads, axis=1) / CHANNELS
    centred = tl.where(is_channel[None, :], heads - mean[:, None], 0.0)
    inverse = tl.rsqrt(tl.sum(centred * centred, axis=1) / CHANNELS + EPS)
    return centred * inverse[:, None] * weight[None, :] + bias[None, :]


@triton.jit
def attend_to_past(
    queries,
    here,  # where this head's keys would lie of place 0
    context,  # the row's places
    tile,  # the first that is this program's
    num_past,
    num_tiles,
    highest,
    total,
    sums,
    is_channel,
    FRAME_STRIDE: tl.constexpr,
    VALUES_OFFSET: tl.constexpr,  # from keys to values
    BLOCK_K: tl.constexpr,
    BLOCK_C: tl.constexpr,
    SPLITS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """Every SPLITS-th tile of frames that the memory holds into the running softmax."""
    keys_of_tile = tl.arange(0, BLOCK_K)
    channels = tl.arange(0, BLOCK_C)
    first = tile * BLOCK_K + keys_of_tile
    places = tl.load(context + first, mask=first < num_past, other=0)
    for i in tl.range(tile, num_tiles, SPLITS, num_stages=NUM_STAGES):
        is_key = i * BLOCK_K + keys_of_tile < num_past
        is_cell = is_key[:, None] & is_channel[None, :]
        theirs = here + places[:, None] * FRAME_STRIDE + channels[None, :]
        # One ahead: the loads of a tile shall not wait for those of its places.
        soon = (i + SPLITS) * BLOCK_K + keys_of_tile
        places = tl.load(context + soon, mask=soon < num_past, other=0)
        keys = tl.load(theirs, mask=is_cell, other=0.0).to(queries.dtype)
        values = tl.load(theirs + VALUES_OFFSET, mask=is_cell, other=0.0).to(queries.dtype)
        highest, total, sums = attend_to(queries, keys, values, is_key, highest, total, sums)
    return highest, total, sums


# Where integers of a bucket begin is as it comes: each alignment would be another kernel.
@triton.jit(
    do_not_specialize=["num_rows", "num_frames", "num_known", "num_places"],
    do_not_specialize_on_alignment=["new_ptr", "context_ptr", "num_tokens_ptr", "num_context_ptr"],
)
def attend_kernel(
    qkv_ptr,  # [C, B, n, 3, H, d]
    out_ptr,  # [C, B, n, H, d]; with more than one split [splits, C, B, n, H, d] float32, for merge_kernel
    highest_ptr,  # [splits, C, B, n, H] float32, with more than one split
    total_ptr,
    memory_ptr,  # [steps, places, 2, C, H, d] of one layer; the new frames' keys and values are written
    query_weight_ptr,  # [d], of the norms
    query_bias_ptr,
    key_weight_ptr,
    key_bias_ptr,
    new_ptr,  # [B, n] places of the new frames
    context_ptr,  # [B, known] places of what they see, themselves the last
    num_tokens_ptr,
    num_context_ptr,
    step_ptr,
    num_rows,
    num_frames,
    num_known,
    num_places,
    COUNT_STRIDE: tl.constexpr,
    FRAMES_PER_TOKEN: tl.constexpr,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    SCALE: tl.constexpr,
    EPS: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_C: tl.constexpr,
    SPLITS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """A program: BLOCK_Q frames of one head of one half of one row, and every SPLITS-th tile of what they see.

    The new frames come last, and their keys and values from qkv, never from the memory: nobody waits for who writes.
    """
    head = tl.program_id(0) % HEADS
    half = tl.program_id(0) // HEADS
    row = tl.program_id(1)
    split = tl.program_id(2) % SPLITS
    first_frame = (tl.program_id(2) // SPLITS) * BLOCK_Q
    frames = first_frame + tl.arange(0, BLOCK_Q)
    keys_of_tile = tl.arange(0, BLOCK_K)
    channels = tl.arange(0, BLOCK_C)
    is_channel = channels < CHANNELS
    # None of these changes within an Euler step, so they need not wait for the product before.
    num_own = tl.load(num_tokens_ptr + row * COUNT_STRIDE).to(tl.int32) * FRAMES_PER_TOKEN
    num_past = tl.load(num_context_ptr + row * COUNT_STRIDE).to(tl.int32) - num_own
    # A padding row's frames, and a program behind a row's end, see nothing and write nothing.
    is_busy = first_frame < num_own
    num_past_tiles = tl.where(is_busy, (num_past + BLOCK_K - 1) // BLOCK_K, 0)
    num_new_tiles = tl.where(is_busy, (num_own + BLOCK_K - 1) // BLOCK_K, 0)
    step = tl.load(step_ptr)
    query_weight = tl.load(query_weight_ptr + channels, mask=is_channel, other=0.0).to(tl.float32)
    query_bias = tl.load(query_bias_ptr + channels, mask=is_channel, other=0.0).to(tl.float32)
    key_weight = tl.load(key_weight_ptr + channels, mask=is_channel, other=0.0).to(tl.float32)
    key_bias = tl.load(key_bias_ptr + channels, mask=is_channel, other=0.0).to(tl.float32)

    frame_stride: tl.constexpr = 4 * HEADS * CHANNELS
    values_offset: tl.constexpr = 2 * HEADS * CHANNELS
    here = memory_ptr + step * num_places * frame_stride + (half * HEADS + head) * CHANNELS
    line = (half * num_rows + row) * num_frames
    mine = qkv_ptr + line * (3 * HEADS * CHANNELS) + head * CHANNELS
    if IS_PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()

    is_frame = frames < num_own
    is_cell = is_frame[:, None] & is_channel[None, :]
    queries = tl.load(mine + frames[:, None] * (3 * HEADS * CHANNELS) + channels[None, :], mask=is_cell, other=0.0)
    dtype = queries.dtype
    queries = normed_heads(queries, query_weight, query_bias, is_channel, CHANNELS, EPS)
    queries = beside((queries * SCALE).to(dtype), memory_ptr)
    highest = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_Q], tl.float32)
    sums = tl.zeros([BLOCK_Q, BLOCK_C], tl.float32)
    highest, total, sums = attend_to_past(
        *(queries, here, context_ptr + row * num_known, split, num_past, num_past_tiles, highest, total, sums),
        is_channel,
        FRAME_STRIDE=frame_stride,
        VALUES_OFFSET=values_offset,
        BLOCK_K=BLOCK_K,
        BLOCK_C=BLOCK_C,
        SPLITS=SPLITS,
        NUM_STAGES=NUM_STAGES,
    )
    # New tiles go on where those of the past end: to the split whose turn it is.
    for i in range((split + SPLITS - num_past_tiles % SPLITS) % SPLITS, num_new_tiles, SPLITS):
        own = i * BLOCK_K + keys_of_tile
        is_key = own < num_own
        is_new = is_key[:, None] & is_channel[None, :]
        new = mine + own[:, None] * (3 * HEADS * CHANNELS) + channels[None, :]
        keys = tl.load(new + HEADS * CHANNELS, mask=is_new, other=0.0)
        keys = normed_heads(keys, key_weight, key_bias, is_channel, CHANNELS, EPS).to(dtype)
        values = tl.load(new + 2 * HEADS * CHANNELS, mask=is_new, other=0.0)
        if first_frame == 0:
            places = tl.load(new_ptr + row * num_frames + own, mask=is_key, other=0)
            kept = here + places[:, None] * frame_stride + channels[None, :]
            tl.store(kept, keys.to(memory_ptr.dtype.element_ty), mask=is_new)
            tl.store(kept + values_offset, values.to(memory_ptr.dtype.element_ty), mask=is_new)
        keys, values = beside(keys, memory_ptr), beside(values, memory_ptr)
        highest, total, sums = attend_to(queries, keys, values, is_key, highest, total, sums)

    keep(
        *(sums, highest, total, out_ptr, highest_ptr, total_ptr, line, frames, head, channels, is_frame, is_cell),
        *(split, 2 * num_rows * num_frames, HEADS, CHANNELS, SPLITS),
    )
