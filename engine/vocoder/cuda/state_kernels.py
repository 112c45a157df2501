"""Triton kernels that move what streams carry between their slots and the heads of the layers' buffers, all at once;
or that put zeros on either side of rows that are there from end to end.

Both ends are words of 4 bytes whatever they mean: tails are kept as the layers read them.
Only the CUDA path imports this module (Triton is optional).
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"

from typing import Final

import triton
import triton.language as tl

from voicegate.engine.vocoder.cuda import rows

# A row of the table of pieces: where BLOCK_WORDS or fewer words of one tail lie.
PIECE_FIELDS: Final = 5
EDGE_FIELDS: Final = 4
WORDS_PER_PIECE: Final = 1024

_PIECE_FIELDS: tl.constexpr = tl.constexpr(PIECE_FIELDS)
_EDGE_FIELDS: tl.constexpr = tl.constexpr(EDGE_FIELDS)
_FIELDS: tl.constexpr = tl.constexpr(rows.NUM_FIELDS)
_SLOT: tl.constexpr = tl.constexpr(rows.SLOT_FIELD)
_FRAMES: tl.constexpr = tl.constexpr(rows.FRAMES_FIELD)
_FIRST: tl.constexpr = tl.constexpr(rows.FIRST_FIELD)


@triton.jit
def load_tails_kernel(state_ptr, arena_ptr, pieces_ptr, rows_ptr, state_words, BLOCK_WORDS: tl.constexpr):
    """Slot -> buffer heads; zeros, what layers pad with, for a stream at its start."""
    piece = pieces_ptr + tl.program_id(0) * _PIECE_FIELDS
    stream = tl.program_id(1)
    row = rows_ptr + stream * _FIELDS
    words = tl.arange(0, BLOCK_WORDS)
    is_word = words < tl.load(piece + 4)
    is_known = is_word & (tl.load(row + _FIRST) == 0)
    state = state_ptr + tl.load(row + _SLOT) * state_words + tl.load(piece)
    buffer = arena_ptr + tl.load(piece + 1) + stream * tl.load(piece + 2)
    tl.store(buffer + words, tl.load(state + words, mask=is_known, other=0), mask=is_word)


@triton.jit
def save_tails_kernel(state_ptr, arena_ptr, pieces_ptr, rows_ptr, state_words, BLOCK_WORDS: tl.constexpr):
    """Columns as far behind the head as the stream advanced -> slot."""
    piece = pieces_ptr + tl.program_id(0) * _PIECE_FIELDS
    stream = tl.program_id(1)
    row = rows_ptr + stream * _FIELDS
    words = tl.arange(0, BLOCK_WORDS)
    is_word = words < tl.load(piece + 4)
    state = state_ptr + tl.load(row + _SLOT) * state_words + tl.load(piece)
    buffer = arena_ptr + tl.load(piece + 1) + stream * tl.load(piece + 2) + tl.load(row + _FRAMES) * tl.load(piece + 3)
    tl.store(state + words, tl.load(buffer + words, mask=is_word, other=0), mask=is_word)


@triton.jit
def zero_edges_kernel(arena_ptr, edges_ptr, rows_ptr, BLOCK_WORDS: tl.constexpr):
    """Zeros before a row's first column (an edge whose place does not depend on frames) and behind its last."""
    edge = edges_ptr + tl.program_id(0) * _EDGE_FIELDS
    stream = tl.program_id(1)
    words = tl.arange(0, BLOCK_WORDS)
    frames = tl.load(rows_ptr + stream * _FIELDS + _FRAMES)
    buffer = arena_ptr + tl.load(edge) + stream * tl.load(edge + 1) + frames * tl.load(edge + 2)
    tl.store(buffer + words, tl.zeros([BLOCK_WORDS], tl.int32), mask=words < tl.load(edge + 3))
