"""Triton attention over the slots' cached keys and values: of lines that decode, and of tiles of lines that are fed."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl

_LEAST_COLUMNS = tl.constexpr(16)  # of a product


@triton.jit
def attend(
    query_ptr,
    lines_ptr,
    cache_ptr,
    out_ptr,
    slot_stride,
    part_stride,
    SCALE: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    MAX_POSITIONS: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    TILE_HEADS: tl.constexpr,
    TILE_LINES: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    DECODE_KEYS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    DECODE_STAGES: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """out [., heads * dim] of one key head; grid (lines, kv_heads). Strides and cache as in `project_qkv`.

    A line that feeds its slot's last token goes alone, and is the only one of its slot. Others go by tiles, which read
    their keys once: what lies side by side of a slot's positions between two multiples of TILE_LINES is one, and its
    first line's program's. The two ways may add in another order, so what decides between them is the line's own, and
    not its neighbours: a tile of one line is still a tile, and while all are finite no row of a tile depends on
    another.
    """
    if IS_PDL:  # the next kernel asks for weights, and for what was there before this one's inputs
        tl.extra.cuda.gdc_launch_dependents()
    line = tl.program_id(0)
    kv_head = tl.program_id(1)
    table_row = tl.load(lines_ptr + line * 4)
    slot = tl.load(lines_ptr + line * 4 + 1)
    position = tl.load(lines_ptr + line * 4 + 2)
    key_ptr = cache_ptr + slot.to(tl.int64) * slot_stride + kv_head * (MAX_POSITIONS * HEAD_DIM)
    GROUP: tl.constexpr = NUM_HEADS // NUM_KV_HEADS
    if table_row < 0:
        _attend_line(
            *(query_ptr, out_ptr, key_ptr, part_stride, line, kv_head, position),
            *(SCALE, NUM_HEADS, GROUP, HEAD_DIM, BLOCK_HEADS, BLOCK_DIM, DECODE_KEYS, DECODE_STAGES, IS_PDL),
        )
    else:
        if IS_PDL:
            tl.extra.cuda.gdc_wait()
        num_ours = _lines_of_tile(lines_ptr, line, slot, position, TILE_LINES)
        if num_ours > 0:
            rows = tl.arange(0, TILE_LINES * TILE_HEADS)
            places, heads = rows // TILE_HEADS, rows % TILE_HEADS
            _attend_rows(
                *(query_ptr, out_ptr, key_ptr, part_stride, line, kv_head, position, num_ours, places, heads),
                *(SCALE, NUM_HEADS, GROUP, HEAD_DIM, BLOCK_DIM, BLOCK_KEYS, NUM_STAGES),
            )


@triton.jit
def _attend_line(
    query_ptr,
    out_ptr,
    key_ptr,
    part_stride,
    line,
    kv_head,
    position,
    SCALE: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    IS_PDL: tl.constexpr,
):
    """One line over its own key and then those before it, key tile after key tile; online softmax, base 2.

    All sums are products of matrices, the weights' with ones: in ascending order of keys, as decode_step.cu's are.
    The keys before it are of earlier steps, so the first tiles' are asked for while `project_qkv` is still making the
    query and the own key: the compiler puts a pipelined loop's first loads before the loop, and the wait is within.
    """
    heads = tl.arange(0, BLOCK_HEADS)
    dims = tl.arange(0, BLOCK_DIM)
    keys = tl.arange(0, BLOCK_KEYS)
    is_dim = dims < HEAD_DIM
    offsets = line * (NUM_HEADS * HEAD_DIM) + (kv_head * GROUP + heads)[:, None] * HEAD_DIM + dims[None, :]
    is_query = (heads < GROUP)[:, None] & is_dim[None, :]
    value_ptr = key_ptr + part_stride
    query = tl.zeros([BLOCK_HEADS, BLOCK_DIM], query_ptr.dtype.element_ty)
    ones = tl.full([BLOCK_KEYS, _LEAST_COLUMNS], 1.0, key_ptr.dtype.element_ty)
    highest = tl.full([BLOCK_HEADS], float("-inf"), tl.float32)
    totals = tl.full([BLOCK_HEADS, _LEAST_COLUMNS], 1.0, tl.float32)  # its columns are equal; the own key's weight
    sums = tl.zeros([BLOCK_HEADS, BLOCK_DIM], tl.float32)
    for first in tl.range(0, tl.maximum(position, 1), BLOCK_KEYS, num_stages=NUM_STAGES):
        is_key = first + keys < position
        places = (first + keys) * HEAD_DIM
        key = tl.load(key_ptr + places[None, :] + dims[:, None], mask=is_dim[:, None] & is_key[None, :], other=0.0)
        value = tl.load(value_ptr + places[:, None] + dims[None, :], mask=is_key[:, None] & is_dim[None, :], other=0.0)
        if first == 0:
            if IS_PDL:
                tl.extra.cuda.gdc_wait()
            query = tl.load(query_ptr + offsets, mask=is_query, other=0.0)
            own = position * HEAD_DIM + dims
            copies = tl.zeros([1, _LEAST_COLUMNS], tl.int32)
            own_key = tl.load(key_ptr + own[:, None] + copies, mask=is_dim[:, None], other=0.0)
            own_value = tl.load(value_ptr + own, mask=is_dim, other=0.0).to(tl.float32)
            highest = tl.max(tl.dot(query, own_key, input_precision="ieee"), 1) * SCALE
            sums += own_value[None, :]
        scores = tl.dot(query, key, input_precision="ieee") * SCALE
        scores = tl.where(is_key[None, :], scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        shrink = tl.exp2(highest - higher)
        weights = tl.exp2(scores - higher[:, None]).to(value.dtype)
        totals = tl.dot(weights, ones, totals * shrink[:, None], input_precision="ieee")
        sums = tl.dot(weights, value, sums * shrink[:, None], input_precision="ieee")
        highest = higher
    attended = (sums / tl.max(totals, 1)[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + offsets, attended, mask=is_query)


@triton.jit
def _lines_of_tile(lines_ptr, line, slot, position, TILE_LINES: tl.constexpr):
    """Lines of the tile that begins with this one; 0 where it lies within another line's."""
    num_ours = 0
    slot_before = tl.load(lines_ptr + line * 4 - 3, mask=line > 0, other=-1)
    if (slot_before != slot) | (position % TILE_LINES == 0):
        others = tl.arange(0, TILE_LINES)
        is_there = line + others < tl.num_programs(0)
        slots = tl.load(lines_ptr + (line + others) * 4 + 1, mask=is_there, other=-1)
        positions = tl.load(lines_ptr + (line + others) * 4 + 2, mask=is_there, other=-1)
        is_ours = (slots == slot) & (positions == position + others) & (others < TILE_LINES - position % TILE_LINES)
        num_ours = tl.sum(is_ours.to(tl.int32))
    return num_ours


@triton.jit
def _attend_rows(
    query_ptr,
    out_ptr,
    key_ptr,
    part_stride,
    line,
    kv_head,
    position,
    num_lines,
    places,
    heads,
    SCALE: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """Rows of one slot's `num_lines` from `line` on, each over the keys from 0 to its own line's position.

    `places` [rows]: a row's line, from `line`, which is at `position`; `heads` [rows]: its head of the key head's. Rows
    beyond the lines and beyond GROUP are nobody's. Online softmax (Milakov and Gimelshein 2018, arXiv:1805.02867), base
    2, key tile after key tile: one that is wholly beyond a row's position changes no bit of it. Reads nothing beyond
    the last line's position: what an earlier sequence left in the slot may be anything.
    """
    row_offsets = (line + places) * (NUM_HEADS * HEAD_DIM) + (kv_head * GROUP + heads) * HEAD_DIM
    is_row = (places < num_lines) & (heads < GROUP)
    positions = position + places
    num_keys = position + num_lines
    dims = tl.arange(0, BLOCK_DIM)
    keys = tl.arange(0, BLOCK_KEYS)
    is_dim = dims < HEAD_DIM
    is_query = is_row[:, None] & is_dim[None, :]
    query = tl.load(query_ptr + row_offsets[:, None] + dims[None, :], mask=is_query, other=0.0)
    value_ptr = key_ptr + part_stride
    highest = tl.full(row_offsets.shape, float("-inf"), tl.float32)
    total = tl.zeros(row_offsets.shape, tl.float32)
    sums = tl.zeros([row_offsets.shape[0], BLOCK_DIM], tl.float32)
    for first in tl.range(0, num_keys, BLOCK_KEYS, num_stages=NUM_STAGES):
        is_key = first + keys < num_keys
        offsets = (first + keys) * HEAD_DIM
        key = tl.load(key_ptr + offsets[None, :] + dims[:, None], mask=is_dim[:, None] & is_key[None, :], other=0.0)
        value = tl.load(value_ptr + offsets[:, None] + dims[None, :], mask=is_key[:, None] & is_dim[None, :], other=0.0)
        scores = tl.dot(query, key, input_precision="ieee") * SCALE
        scores = tl.where((first + keys)[None, :] <= positions[:, None], scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        shrink = tl.exp2(highest - higher)
        weights = tl.exp2(scores - higher[:, None])
        total = total * shrink + tl.sum(weights, 1)
        sums = tl.dot(weights.to(value.dtype), value, sums * shrink[:, None], input_precision="ieee")
        highest = higher
    attended = (sums / total[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row_offsets[:, None] + dims[None, :], attended, mask=is_query)
