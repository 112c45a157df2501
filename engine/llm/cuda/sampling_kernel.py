"""Repetition-aware sampling as one Triton kernel; `engine.llm.sampler` is the reference and explains the rules."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl


@triton.jit
def sample(
    scores_ptr,
    samples_ptr,
    last_token_ptr,
    history_ptr,
    tokens_ptr,
    NUM_IDS: tl.constexpr,
    SCORES_STRIDE: tl.constexpr,
    SPEECH_TOKEN_SIZE: tl.constexpr,
    FILL_ID: tl.constexpr,
    WINDOW: tl.constexpr,
    HISTORY_STRIDE: tl.constexpr,
    TOP_P: tl.constexpr,
    TOP_K: tl.constexpr,
    MIN_REPEATS: tl.constexpr,
    BLOCK_IDS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    IS_IGNORING_EOS: tl.constexpr,
    IS_FORCED_FILL: tl.constexpr,
    COUNTS_AS_FILL: tl.constexpr,
    IS_FRESH: tl.constexpr,
):
    """One sample: its token to `tokens` [samples], `last_token` [slots] and the ring `history` [slots, stride].

    Grid (samples,). Sums that decide are float64, in the reference's order within the nucleus. Ids are int32.
    """
    index = tl.program_id(0)
    record = samples_ptr - (index + 1) * 8
    slot = tl.load(record + 1)
    flags = tl.load(record + 2)
    ring_place = tl.load(record + 3)
    uniforms = (record + 4).to(tl.pointer_type(tl.float64), bitcast=True)
    ids = tl.arange(0, BLOCK_IDS)
    is_id = ids < NUM_IDS
    scores = tl.load(scores_ptr + index * SCORES_STRIDE + ids, mask=is_id, other=float("-inf"))
    is_masked = (ids == SPEECH_TOKEN_SIZE) & ((flags & IS_IGNORING_EOS) != 0)
    scores = tl.where(is_masked, float("-inf"), scores)

    weights = tl.exp(scores - tl.max(scores, 0))
    # Bits of non-negative floats order as the floats do, and integer maxima take one instruction a warp.
    left = (weights / tl.sum(weights, 0)).to(tl.int32, bitcast=True)  # negative where taken
    places = tl.arange(0, BLOCK_K)
    candidates = tl.zeros([BLOCK_K], tl.int32)
    cumulative = tl.full([BLOCK_K], float("inf"), tl.float64)
    top_p = tl.full([], TOP_P, tl.float64)
    total = tl.full([], 0.0, tl.float64)
    num_taken = 0
    is_open = True
    while is_open:
        highest = tl.max(left, 0)
        weight = highest.to(tl.float32, bitcast=True).to(tl.float64)
        grown = total + weight
        is_open = grown - weight < top_p
        if is_open:
            best = tl.min(tl.where(left == highest, ids, BLOCK_IDS), 0)  # of equal ones the lowest
            total = grown
            candidates = tl.where(places == num_taken, best, candidates)
            cumulative = tl.where(places == num_taken, grown, cumulative)
            left = tl.where(ids == best, -1, left)
            num_taken += 1
            is_open = num_taken < TOP_K
    chosen = tl.sum((cumulative < tl.load(uniforms) * total).to(tl.int32), 0)
    token = tl.sum(tl.where(places == chosen, candidates, 0), 0)
    token = tl.minimum(token, NUM_IDS - 1)  # scores that are not finite may have chosen the padding

    ring = tl.arange(0, HISTORY_STRIDE)
    ring_ptrs = history_ptr + slot * HISTORY_STRIDE + ring
    history = tl.load(ring_ptrs)
    history = tl.where((ring < WINDOW) & ((flags & IS_FRESH) == 0), history, -1)
    if tl.sum((history == token).to(tl.int32), 0) >= MIN_REPEATS:
        scores = tl.where(ids == token, float("-inf"), scores)
        cumulative_all = tl.cumsum(tl.exp(scores - tl.max(scores, 0)).to(tl.float64), 0)
        target = tl.load(uniforms + 1) * tl.max(cumulative_all, 0)
        token = tl.minimum(tl.sum((cumulative_all < target).to(tl.int32), 0), NUM_IDS - 1)

    is_special = (token >= SPEECH_TOKEN_SIZE) & ((flags & COUNTS_AS_FILL) != 0)
    decoded = tl.where(is_special | ((flags & IS_FORCED_FILL) != 0), FILL_ID, token)
    tl.store(ring_ptrs, tl.where(ring == ring_place, decoded, history))
    tl.store(last_token_ptr + slot, token)
    tl.store(tokens_ptr + index, token)
