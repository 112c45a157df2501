"""Sampling by repetition penalty as Triton kernels; `engine.llm.torch.penalty_sampler` is the reference.

Which ids a sequence was fed is kept as numbers, not flags: a slot's next sequence has another number (word 3 of its
lines), so nothing has to be cleared between the two, and steps of both may be on their way.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

import triton
import triton.language as tl

from voicegate.engine.llm.cuda.sampling_kernel import draw_of_nucleus, end_kept, is_end, keep_candidates


@triton.jit
def note_fed(
    lines_ptr,
    last_token_ptr,
    fed_by_ptr,
    FIRST_SPEECH_ROW: tl.constexpr,
    FED_STRIDE: tl.constexpr,
    FIRST_END: tl.constexpr,
    ENDS_STOP: tl.constexpr,
):
    """One line: its speech id, where it feeds one, to `fed_by` [slots, speech ids]. Grid (lines,)."""
    line = tl.program_id(0)
    table_row = tl.load(lines_ptr + line * 4)
    slot = tl.load(lines_ptr + line * 4 + 1)
    number = tl.load(lines_ptr + line * 4 + 3)
    speech_id = table_row - FIRST_SPEECH_ROW
    if table_row < 0:
        speech_id = tl.load(last_token_ptr + slot)
        # Fed by a step ahead, which did not know that the reading was over.
        speech_id = tl.where(is_end(speech_id, FIRST_END, ENDS_STOP), -1, speech_id)
    if speech_id >= 0:
        tl.store(fed_by_ptr + slot * FED_STRIDE + speech_id, number)


@triton.jit
def sample(
    scores_ptr,
    records_ptr,
    last_token_ptr,
    fed_by_ptr,
    tokens_ptr,
    candidates_ptr,
    NUM_IDS: tl.constexpr,
    SCORES_STRIDE: tl.constexpr,
    SPEECH_TOKEN_SIZE: tl.constexpr,
    FED_STRIDE: tl.constexpr,
    PENALTY: tl.constexpr,
    TEMPERATURE: tl.constexpr,
    TOP_P: tl.constexpr,
    TOP_K: tl.constexpr,
    BLOCK_IDS: tl.constexpr,
    NUM_CANDIDATES: tl.constexpr,
    IS_IGNORING_EOS: tl.constexpr,
    GOES_ON: tl.constexpr,
    FIRST_END: tl.constexpr,
    ENDS_STOP: tl.constexpr,
):
    """One sample: its token to `tokens` [samples] and `last_token` [slots]. Grid (samples,).

    `records_ptr`: samples before it, lines behind it (packing.py). Scratch and ids as in `sampling_kernel.sample`.
    """
    index = tl.program_id(0)
    record = records_ptr - (index + 1) * 8
    line = tl.load(record)
    slot = tl.load(record + 1)
    flags = tl.load(record + 2)
    uniforms = (record + 4).to(tl.pointer_type(tl.float64), bitcast=True)
    number = tl.load(records_ptr + line * 4 + 3)
    candidates = tl.arange(0, NUM_CANDIDATES)
    bits_ptr = candidates_ptr + index * (2 * NUM_CANDIDATES)
    ids_ptr = bits_ptr + NUM_CANDIDATES
    tl.store(bits_ptr + candidates, -1)
    ids = tl.arange(0, BLOCK_IDS)
    is_id = ids < NUM_IDS
    scores = tl.load(scores_ptr + index * SCORES_STRIDE + ids, mask=is_id, other=float("-inf"))
    is_masked = (ids == SPEECH_TOKEN_SIZE) & ((flags & IS_IGNORING_EOS) != 0)
    scores = tl.where(is_masked, float("-inf"), scores)
    is_fed = tl.load(fed_by_ptr + slot * FED_STRIDE + ids, mask=is_id, other=0) == number
    penalised = tl.where(scores > 0, scores / PENALTY, scores * PENALTY)
    scores = tl.where(is_fed, penalised, scores) / TEMPERATURE

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
        IS_WITHIN_TOP_K=True,
    )
    token = tl.minimum(token, NUM_IDS - 1)  # whatever scores that are not finite have chosen
    token = end_kept(token, tl.load(last_token_ptr + slot), flags, GOES_ON, FIRST_END, ENDS_STOP)
    tl.store(last_token_ptr + slot, token)
    tl.store(tokens_ptr + index, token)
