"""Repetition-aware sampling as one Triton kernel; `engine.llm.torch.sampler` is the reference and explains the rules.

Nothing is sorted and no candidate waits for the one before: a bisection leaves a few ids that the nucleus must be
among, and each of these finds its own rank and the probability before it by comparing itself with all of them.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl

# Factors of two below the highest probability where the bisection begins.
FIRST_OCTAVES = tl.constexpr(6)


@triton.jit
def bisect(bits, high, TOP_K: tl.constexpr, NUM_IDS: tl.constexpr, NUM_CANDIDATES: tl.constexpr):
    """A number that at least TOP_K of `bits` are at or above, and no more than NUM_CANDIDATES but for equal ones.

    `bits` [.] int32, -1 where there is no id; none reaches `high`.
    """
    low = 0
    count = NUM_IDS
    while (count > NUM_CANDIDATES) & (high - low > 1):
        middle = tl.maximum(low + (high - low) // 2, high - (FIRST_OCTAVES << 23))
        at_or_above = tl.sum((bits >= middle).to(tl.int32), 0)
        if at_or_above >= TOP_K:
            low = middle
            count = at_or_above
        else:
            high = middle
    return low


@triton.jit
def keep_candidates(
    bits, highest, ids, bits_ptr, ids_ptr, TOP_K: tl.constexpr, NUM_IDS: tl.constexpr, NUM_CANDIDATES: tl.constexpr
):
    """To `bits_ptr` and `ids_ptr` [NUM_CANDIDATES], in any order: those that the nucleus must be among."""
    low = bisect(bits, highest + 1, TOP_K, NUM_IDS, NUM_CANDIDATES)
    # Those above `low` from the beginning on; those at it from the end, of too many the lowest ids.
    is_above = bits > low
    is_at = bits == low
    counts = tl.cumsum(is_above.to(tl.int32) + (is_at.to(tl.int32) << 16), 0)
    places = tl.where(is_above, (counts & 0xFFFF) - 1, NUM_CANDIDATES - (counts >> 16))
    is_candidate = (is_above & (places < NUM_CANDIDATES)) | (is_at & (places >= TOP_K))
    tl.debug_barrier()  # all threads' stores before what other threads store there, and that before it is loaded
    tl.store(bits_ptr + places, bits, mask=is_candidate)
    tl.store(ids_ptr + places, ids, mask=is_candidate)
    tl.debug_barrier()


@triton.jit
def draw_of_nucleus(
    bits,
    ids,
    TOP_P: tl.constexpr,
    TOP_K: tl.constexpr,
    uniform,
    bits_again,
    ids_again,
    IS_WITHIN_TOP_K: tl.constexpr,
):
    """The id that `uniform` picks: int32. Candidates in any order, their probabilities' bits -1 where there is none.

    IS_WITHIN_TOP_K: TOP_P is a share of what the best TOP_K have, not of all. `.._again` are the same numbers, to be
    laid out along the other axis. Sums are float64, and exact in any order without IS_WITHIN_TOP_K: a candidate of the
    nucleus has no less than (1 - TOP_P) / ids then, so 53 bits hold all of a sum's.
    """
    precedes = (bits_again[None, :] > bits[:, None]) | (
        (bits_again[None, :] == bits[:, None]) & (ids_again[None, :] < ids[:, None])
    )
    weights = tl.where(bits >= 0, bits, 0).to(tl.float32, bitcast=True).to(tl.float64)
    weights_again = tl.where(bits_again >= 0, bits_again, 0).to(tl.float32, bitcast=True).to(tl.float64)
    ranks = tl.sum(precedes.to(tl.int32), 1)
    before = tl.sum(tl.where(precedes, weights_again[None, :], 0.0), 1)
    is_in = (bits >= 0) & (ranks < TOP_K)
    share = tl.full([], TOP_P, tl.float64)
    if IS_WITHIN_TOP_K:
        share *= tl.sum(tl.where(is_in, weights, 0.0), 0)
    is_in &= before < share
    total = tl.sum(tl.where(is_in, weights, 0.0), 0)
    chosen = tl.sum((is_in & (before + weights < uniform * total)).to(tl.int32), 0)
    return tl.sum(tl.where(is_in & (ranks == chosen), ids, 0), 0)


@triton.jit
def is_end(token, FIRST_END: tl.constexpr, ENDS_STOP: tl.constexpr):
    """Whether it ends speech: `engine.llm.feed.ends_speech`."""
    return (token >= FIRST_END) & (token < ENDS_STOP)


@triton.jit
def end_kept(token, last, flags, GOES_ON: tl.constexpr, FIRST_END: tl.constexpr, ENDS_STOP: tl.constexpr):
    """The end that the slot drew last, if this sample goes on behind it: a step ahead did not know. Else `token`."""
    return tl.where(is_end(last, FIRST_END, ENDS_STOP) & ((flags & GOES_ON) != 0), last, token)


@triton.jit
def sample(
    scores_ptr,
    samples_ptr,
    last_token_ptr,
    history_ptr,
    tokens_ptr,
    candidates_ptr,
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
    NUM_CANDIDATES: tl.constexpr,
    IS_IGNORING_EOS: tl.constexpr,
    IS_FORCED_FILL: tl.constexpr,
    COUNTS_AS_FILL: tl.constexpr,
    IS_FRESH: tl.constexpr,
    GOES_ON: tl.constexpr,
    FIRST_END: tl.constexpr,
    ENDS_STOP: tl.constexpr,
):
    """One sample: its token to `tokens` [samples], `last_token` [slots] and the ring `history` [slots, stride].

    Grid (samples,). Ids are int32. `candidates` [samples, 2, NUM_CANDIDATES] int32 is scratch; at least 2 TOP_K.
    """
    index = tl.program_id(0)
    record = samples_ptr - (index + 1) * 8
    slot = tl.load(record + 1)
    flags = tl.load(record + 2)
    ring_place = tl.load(record + 3)
    uniforms = (record + 4).to(tl.pointer_type(tl.float64), bitcast=True)
    ring = tl.arange(0, HISTORY_STRIDE)
    ring_ptrs = history_ptr + slot * HISTORY_STRIDE + ring
    history = tl.load(ring_ptrs)
    history = tl.where((ring < WINDOW) & ((flags & IS_FRESH) == 0), history, -1)
    candidates = tl.arange(0, NUM_CANDIDATES)
    bits_ptr = candidates_ptr + index * (2 * NUM_CANDIDATES)
    ids_ptr = bits_ptr + NUM_CANDIDATES
    tl.store(bits_ptr + candidates, -1)
    ids = tl.arange(0, BLOCK_IDS)
    is_id = ids < NUM_IDS
    scores = tl.load(scores_ptr + index * SCORES_STRIDE + ids, mask=is_id, other=float("-inf"))
    is_masked = (ids == SPEECH_TOKEN_SIZE) & ((flags & IS_IGNORING_EOS) != 0)
    scores = tl.where(is_masked, float("-inf"), scores)

    weights = tl.exp(scores - tl.max(scores, 0))
    sum_of_weights = tl.sum(weights, 0)
    # Bits of non-negative floats order as the floats do. The highest is that of exp(0) / sum.
    bits = tl.where(is_id, (weights / sum_of_weights).to(tl.int32, bitcast=True), -1)
    highest = (1.0 / sum_of_weights).to(tl.int32, bitcast=True)
    keep_candidates(bits, highest, ids, bits_ptr, ids_ptr, TOP_K, NUM_IDS, NUM_CANDIDATES)
    token = draw_of_nucleus(
        tl.load(bits_ptr + candidates),
        tl.load(ids_ptr + candidates),
        TOP_P,
        TOP_K,
        tl.load(uniforms),
        tl.load(bits_ptr + candidates),
        tl.load(ids_ptr + candidates),
        IS_WITHIN_TOP_K=False,
    )
    token = tl.minimum(token, NUM_IDS - 1)  # whatever scores that are not finite have chosen

    if tl.sum((history == token).to(tl.int32), 0) >= MIN_REPEATS:
        scores = tl.where(ids == token, float("-inf"), scores)
        cumulative = tl.cumsum(tl.exp(scores - tl.max(scores, 0)).to(tl.float64), 0)
        target = tl.load(uniforms + 1) * tl.max(cumulative, 0)
        token = tl.minimum(tl.sum((cumulative < target).to(tl.int32), 0), NUM_IDS - 1)

    token = end_kept(token, tl.load(last_token_ptr + slot), flags, GOES_ON, FIRST_END, ENDS_STOP)
    is_forgotten = is_end(token, FIRST_END, ENDS_STOP) & ((flags & COUNTS_AS_FILL) == 0)
    is_special = (token >= SPEECH_TOKEN_SIZE) & ((flags & COUNTS_AS_FILL) != 0)
    decoded = tl.where(is_special | ((flags & IS_FORCED_FILL) != 0), FILL_ID, token)
    tl.store(ring_ptrs, tl.where((ring == ring_place) & (is_forgotten == 0), decoded, history))
    tl.store(last_token_ptr + slot, token)
    tl.store(tokens_ptr + index, token)
