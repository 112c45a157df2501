"""Triton attention of single lines over the slots' cached keys and values: the same for prefill and decode."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl


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
    BLOCK_DIM: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """out [., heads * dim] of one line and key head; grid (lines, kv_heads). Keys 0 .. position, tile after tile.

    Online softmax (Milakov and Gimelshein 2018, arXiv:1805.02867), base 2. Reads nothing beyond the line's own
    position: what an earlier sequence left in the slot may be anything. Strides and cache as in `project_qkv`.
    """
    line = tl.program_id(0)
    kv_head = tl.program_id(1)
    slot = tl.load(lines_ptr + line * 4 + 1).to(tl.int64)
    num_keys = tl.load(lines_ptr + line * 4 + 2) + 1
    GROUP: tl.constexpr = NUM_HEADS // NUM_KV_HEADS
    heads = tl.arange(0, BLOCK_HEADS)
    dims = tl.arange(0, BLOCK_DIM)
    keys = tl.arange(0, BLOCK_KEYS)
    is_dim = dims < HEAD_DIM
    is_query = (heads < GROUP)[:, None] & is_dim[None, :]
    query_offsets = line * (NUM_HEADS * HEAD_DIM) + (kv_head * GROUP + heads)[:, None] * HEAD_DIM + dims[None, :]
    query = tl.load(query_ptr + query_offsets, mask=is_query, other=0.0)

    key_ptr = cache_ptr + slot * slot_stride + kv_head * (MAX_POSITIONS * HEAD_DIM)
    value_ptr = key_ptr + part_stride
    highest = tl.full([BLOCK_HEADS], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_HEADS], tl.float32)
    sums = tl.zeros([BLOCK_HEADS, BLOCK_DIM], tl.float32)
    for first in tl.range(0, num_keys, BLOCK_KEYS, num_stages=NUM_STAGES):
        is_key = first + keys < num_keys
        offsets = (first + keys) * HEAD_DIM
        key = tl.load(key_ptr + offsets[None, :] + dims[:, None], mask=is_dim[:, None] & is_key[None, :], other=0.0)
        value = tl.load(value_ptr + offsets[:, None] + dims[None, :], mask=is_key[:, None] & is_dim[None, :], other=0.0)
        scores = tl.dot(query, key, input_precision="ieee") * SCALE
        scores = tl.where(is_key[None, :], scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        shrink = tl.exp2(highest - higher)
        weights = tl.exp2(scores - higher[:, None])
        total = total * shrink + tl.sum(weights, 1)
        sums = tl.dot(weights.to(value.dtype), value, sums * shrink[:, None], input_precision="ieee")
        highest = higher
    attended = (sums / total[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + query_offsets, attended, mask=is_query)
