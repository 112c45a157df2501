"""Triton kernels of attention over a paged context, with rotary and the write to the pool.

Shapes: C = 2 CFG halves, R rows with L lines in all, H heads of d channels; frame i of row r of half h is line
h * L + START[r] + i. Every per-batch number comes from `rows` (columns: buffers.py) and `step` on the device. Only the
CUDA path imports this module (Triton is optional).

Offsets into the pool pass 2**31 elements: block numbers are int64, and so is what they are multiplied with.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)
# Below every score; not infinity, from which no tile without a key could be told.
NOTHING_YET: tl.constexpr = tl.constexpr(-1e30)


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
def beside(vectors, memory_ptr):
    """Queries, keys or values in the precision in which they meet what the memory holds.

    bfloat16 beside float8 becomes float16, which holds e4m3 exactly: a Hopper takes two such numbers there in one
    instruction, and none to bfloat16 but by one more for each, in the unit that the exponents keep busy (ADR 0013).
    """
    if memory_ptr.dtype.element_ty.primitive_bitwidth == 8 and vectors.dtype == tl.bfloat16:
        vectors = vectors.to(tl.float16)
    return vectors


@triton.jit
def attend_to_past(
    queries,
    here,  # where this head's keys would lie of the pool's block 0
    table,  # finished blocks
    finished,  # the first of them that is this program's
    split,
    num_finished,
    highest,
    total,
    sums,
    WHOLE_BLOCK: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK_STRIDE: tl.constexpr,
    VALUES_OFFSET: tl.constexpr,  # from keys to values
    BLOCK_K: tl.constexpr,
    BLOCK_C: tl.constexpr,
    SPLITS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """Every SPLITS-th finished block into the running softmax, a block a tile."""
    past = tl.arange(0, BLOCK_K)
    channels = tl.arange(0, BLOCK_C)
    is_past = past < WHOLE_BLOCK  # a constant mask: of 64 columns, only the last 16 are ever compared
    offsets = past[:, None] * CHANNELS + channels[None, :]
    is_cell = is_past[:, None] & (channels < CHANNELS)[None, :]
    for i in tl.range(split, num_finished, SPLITS, num_stages=NUM_STAGES):
        theirs = here + finished * BLOCK_STRIDE + offsets
        # One ahead: the loads of a tile shall not wait for that of its number.
        finished = tl.load(table + tl.minimum(i + SPLITS, num_finished - 1))
        keys = tl.load(theirs, mask=is_cell, other=0.0).to(queries.dtype)
        values = tl.load(theirs + VALUES_OFFSET, mask=is_cell, other=0.0).to(queries.dtype)
        highest, total, sums = attend_to(queries, keys, values, is_past, highest, total, sums)
    return highest, total, sums


@triton.jit
def keep(
    sums,
    highest,
    total,
    out_ptr,
    highest_ptr,
    total_ptr,
    line,  # first of the row
    frames,
    head,
    channels,
    is_frame,
    is_cell,
    split,
    num_lines,  # of both halves
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """The result of attention; from a program that is one of several its part, which merge_kernel takes up."""
    if SPLITS > 1:
        line += split * num_lines
        parts = (line + frames) * HEADS + head
        tl.store(highest_ptr + parts, highest, mask=is_frame)
        tl.store(total_ptr + parts, total, mask=is_frame)
    else:
        sums *= (1.0 / total)[:, None]
    out = out_ptr + ((line + frames) * HEADS + head)[:, None] * CHANNELS + channels[None, :]
    tl.store(out, sums.to(out_ptr.dtype.element_ty), mask=is_cell)


@triton.jit
def rotate(vectors, cosine_ptr, sine_ptr, positions, is_frame, CHANNELS: tl.constexpr):
    """Rotary of interleaved pairs: channels (2i, 2i + 1) of [Q, d] by row `positions` of the tables; in float32."""
    pairs = tl.arange(0, vectors.shape[1] // 2)
    angles = positions[:, None] * (CHANNELS // 2) + pairs[None, :]
    is_turned = is_frame[:, None] & (pairs < CHANNELS // 2)[None, :]
    cosine = tl.load(cosine_ptr + angles, mask=is_turned, other=1.0)
    sine = tl.load(sine_ptr + angles, mask=is_turned, other=0.0)
    even, odd = tl.split(tl.reshape(vectors.to(tl.float32), [vectors.shape[0], vectors.shape[1] // 2, 2]))
    turned = tl.join(even * cosine - odd * sine, odd * cosine + even * sine)
    return tl.reshape(turned, vectors.shape).to(vectors.dtype)


@triton.jit
def prefetch(keys, values, is_wanted, NUM_BYTES: tl.constexpr):
    """NUM_BYTES from each address [128] into the L2 cache; nothing waits for it. One address is one thread's."""
    tl.static_assert(NUM_BYTES % 16 == 0, "cp.async.bulk takes multiples of 16 bytes")
    tl.inline_asm_elementwise(
        """{
        .reg .pred %wanted;
        setp.ne.u32 %wanted, $3, 0;
        @%wanted cp.async.bulk.prefetch.L2.global [$1], $4;
        @%wanted cp.async.bulk.prefetch.L2.global [$2], $4;
        mov.u32 $0, 0;
        }""",
        "=r,l,l,r,r",
        [keys, values, is_wanted.to(tl.int32), tl.full([128], NUM_BYTES, tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def new_block(
    new,  # where its queries lie; keys and values behind them
    mine,  # where its keys lie in the pool
    pool_ptr,
    cosine_ptr,
    sine_ptr,
    positions,
    is_frame,
    is_cell,
    head,
    is_kept,
    VALUES_OFFSET: tl.constexpr,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """-> its queries, keys and values, beside the pool's; `is_kept`: they go there, too."""
    queries = tl.load(new, mask=is_cell, other=0.0)
    keys = tl.load(new + HEADS * CHANNELS, mask=is_cell, other=0.0)
    values = tl.load(new + 2 * HEADS * CHANNELS, mask=is_cell, other=0.0)
    # Upstream rotates before it splits heads, and only as many channels as one head has: head 0 alone.
    if head == 0:
        queries = rotate(queries, cosine_ptr, sine_ptr, positions, is_frame, CHANNELS)
        keys = rotate(keys, cosine_ptr, sine_ptr, positions, is_frame, CHANNELS)
    if is_kept:
        tl.store(mine, keys.to(pool_ptr.dtype.element_ty), mask=is_cell)
        tl.store(mine + VALUES_OFFSET, values.to(pool_ptr.dtype.element_ty), mask=is_cell)
    return beside(queries, pool_ptr), beside(keys, pool_ptr), beside(values, pool_ptr)


@triton.jit(do_not_specialize=["layer", "num_lines"])
def attend_kernel(
    qkv_ptr,  # [C, L, 3, H, d]
    out_ptr,  # [C, L, H, d]; with more than one split [splits, C, L, H, d] float32, for merge_kernel
    highest_ptr,  # [splits, C, L, H] float32, with more than one split
    total_ptr,
    pool_ptr,  # [blocks, steps, depth, 2, C * H, 50, d]; the new block's keys and values are written
    cosine_ptr,  # [max_frames, d / 2] float32
    sine_ptr,
    step_ptr,
    rows_ptr,
    layer,
    num_lines,
    ROW_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,  # columns of a row
    NUM_FRAMES: tl.constexpr,
    START: tl.constexpr,
    NUM_FINISHED: tl.constexpr,
    FIRST_FRAME: tl.constexpr,
    TABLE: tl.constexpr,
    STEPS: tl.constexpr,
    DEPTH: tl.constexpr,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    WHOLE_BLOCK: tl.constexpr,
    BLOCK_Q: tl.constexpr,  # at least the frames of a row
    BLOCK_K: tl.constexpr,  # at least 50: a tile is one finished block, so its address is one number
    BLOCK_C: tl.constexpr,
    SPLITS: tl.constexpr,
    PREFETCH: tl.constexpr,  # finished blocks of a program, before it waits for qkv
    NUM_STAGES: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """A program: one head of one half of one row, and every SPLITS-th of its blocks, the new one coming last.

    The new block's keys and values come from qkv, never from the pool.
    """
    head = tl.program_id(0) % HEADS
    half = tl.program_id(0) // HEADS
    row = tl.program_id(1)
    split = tl.program_id(2)
    frames = tl.arange(0, BLOCK_Q)
    channels = tl.arange(0, BLOCK_C)
    is_channel = channels < CHANNELS
    # None of these changes within an Euler step, so they need not wait for the product before.
    cells = rows_ptr + row * ROW_WIDTH
    num_frames = tl.load(cells + NUM_FRAMES).to(tl.int32)  # 0 in a padding row, which so does nothing
    is_frame = frames < num_frames
    is_cell = is_frame[:, None] & is_channel[None, :]
    line = half * num_lines + tl.load(cells + START).to(tl.int32)
    num_finished = tl.load(cells + NUM_FINISHED).to(tl.int32)
    block = tl.load(cells + BLOCK)
    first_frame = tl.load(cells + FIRST_FRAME)
    step = tl.load(step_ptr)
    finished = tl.load(cells + TABLE + tl.minimum(split, ROW_WIDTH - TABLE - 1))

    tile: tl.constexpr = WHOLE_BLOCK * CHANNELS
    values_offset: tl.constexpr = 2 * HEADS * tile
    block_stride: tl.constexpr = STEPS * DEPTH * 2 * values_offset
    here = pool_ptr + (step * DEPTH + layer) * (2 * values_offset) + (half * HEADS + head) * tile
    if PREFETCH > 0:
        numbers = split + tl.arange(0, 128) * SPLITS
        is_soon = numbers < tl.minimum(num_finished, split + PREFETCH * SPLITS)
        soon = here + tl.load(cells + TABLE + numbers, mask=is_soon, other=0) * block_stride
        prefetch(soon, soon + values_offset, is_soon, tile * (pool_ptr.dtype.element_ty.primitive_bitwidth // 8))
    highest = tl.full([BLOCK_Q], NOTHING_YET, tl.float32)
    total = tl.zeros([BLOCK_Q], tl.float32)
    sums = tl.zeros([BLOCK_Q, BLOCK_C], tl.float32)
    new = qkv_ptr + ((line + frames) * (3 * HEADS) + head)[:, None] * CHANNELS + channels[None, :]
    mine = here + block * block_stride + frames[:, None] * CHANNELS + channels[None, :]
    positions = first_frame + frames
    if SPLITS > 1:
        past = tl.arange(0, BLOCK_K)
        is_past = past < WHOLE_BLOCK
        offsets = past[:, None] * CHANNELS + channels[None, :]
        is_past_cell = is_past[:, None] & is_channel[None, :]
        queries = beside(tl.zeros([BLOCK_Q, BLOCK_C], qkv_ptr.dtype.element_ty), pool_ptr)
        # At least once: the compiler puts a pipelined loop's first loads before the loop, and the wait is within.
        for i in tl.range(split, tl.maximum(num_finished, split + 1), SPLITS, num_stages=NUM_STAGES):
            theirs = here + finished * block_stride + offsets
            is_there = is_past_cell & (i < num_finished)
            finished = tl.load(cells + TABLE + tl.minimum(i + SPLITS, tl.maximum(num_finished, 1) - 1))
            past_keys = tl.load(theirs, mask=is_there, other=0.0)
            past_values = tl.load(theirs + values_offset, mask=is_there, other=0.0)
            if i == split:
                if IS_PDL:
                    tl.extra.cuda.gdc_wait()
                    tl.extra.cuda.gdc_launch_dependents()
                queries, keys, values = new_block(
                    *(new, mine, pool_ptr, cosine_ptr, sine_ptr, positions, is_frame, is_cell, head),
                    (num_frames == WHOLE_BLOCK) & (split == 0),
                    *(values_offset, HEADS, CHANNELS),
                )
                if num_frames > 0 and num_finished % SPLITS == split:
                    highest, total, sums = attend_to(queries, keys, values, is_frame, highest, total, sums)
            past_keys, past_values = past_keys.to(queries.dtype), past_values.to(queries.dtype)
            is_key = is_past & (i < num_finished)
            highest, total, sums = attend_to(queries, past_keys, past_values, is_key, highest, total, sums)
    else:
        if IS_PDL:
            tl.extra.cuda.gdc_wait()
            tl.extra.cuda.gdc_launch_dependents()
        queries, keys, values = new_block(
            *(new, mine, pool_ptr, cosine_ptr, sine_ptr, positions, is_frame, is_cell, head),
            num_frames == WHOLE_BLOCK,
            *(values_offset, HEADS, CHANNELS),
        )
        # A branch that the compiler cannot remove frees the shared memory of these keys and values for the loop: 56
        # instead of 64 KiB, and so four programs on a multiprocessor instead of three.
        if num_frames > 0:
            highest, total, sums = attend_to(queries, keys, values, is_frame, highest, total, sums)
        highest, total, sums = attend_to_past(
            *(queries, here, cells + TABLE, finished, split, num_finished, highest, total, sums),
            WHOLE_BLOCK=WHOLE_BLOCK,
            CHANNELS=CHANNELS,
            BLOCK_STRIDE=block_stride,
            VALUES_OFFSET=values_offset,
            BLOCK_K=BLOCK_K,
            BLOCK_C=BLOCK_C,
            SPLITS=SPLITS,
            NUM_STAGES=NUM_STAGES,
        )
    keep(
        *(sums, highest, total, out_ptr, highest_ptr, total_ptr, line, frames, head, channels, is_frame, is_cell),
        *(split, 2 * num_lines, HEADS, CHANNELS, SPLITS),
    )


@triton.jit(do_not_specialize=["num_lines"])
def merge_kernel(
    sums_ptr,  # [splits, lines, d] float32, a line being one head of one frame
    highest_ptr,  # [splits, lines] float32
    total_ptr,
    out_ptr,  # [lines, d]
    num_lines,
    CHANNELS: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_C: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """Add up the splits of attend_kernel, in their order; one that had no block counts 0."""
    lines = tl.program_id(0) * BLOCK_L + tl.arange(0, BLOCK_L)
    channels = tl.arange(0, BLOCK_C)
    is_line = lines < num_lines
    is_cell = is_line[:, None] & (channels < CHANNELS)[None, :]
    offsets = lines[:, None] * CHANNELS + channels[None, :]
    if IS_PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    highest = tl.full([BLOCK_L], float("-inf"), tl.float32)
    for split in tl.static_range(SPLITS):
        highest = tl.maximum(highest, tl.load(highest_ptr + split * num_lines + lines, mask=is_line, other=0.0))
    total = tl.zeros([BLOCK_L], tl.float32)
    sums = tl.zeros([BLOCK_L, BLOCK_C], tl.float32)
    for split in tl.static_range(SPLITS):
        first = split * num_lines
        weight = tl.exp2(tl.load(highest_ptr + first + lines, mask=is_line, other=0.0) - highest)
        total += weight * tl.load(total_ptr + first + lines, mask=is_line, other=1.0)
        sums += weight[:, None] * tl.load(sums_ptr + first * CHANNELS + offsets, mask=is_cell, other=0.0)
    tl.store(out_ptr + offsets, (sums * (1.0 / total)[:, None]).to(out_ptr.dtype.element_ty), mask=is_cell)
