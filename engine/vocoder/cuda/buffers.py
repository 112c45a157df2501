"""The layers' buffers in one block of memory, their tails in one table of slots, and which is where.

A buffer is [blocks, streams, margin + columns + ahead, channels]: `margin` columns of the past, then the call's own,
then what those find who look ahead. All stay as they are until the tails are saved at the call's end. Every bucket lays
its own, denser shapes over the same places.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from voicegate.engine.vocoder.cuda.state_kernels import WORDS_PER_PIECE

_WORD_BYTES: Final = 4
_ALIGNMENT_WORDS: Final = 64
# Tiles read past the last column of the last buffer: what they find is multiplied into rows that nobody stores.
_SLACK_WORDS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """`rate` columns per mel frame and `extra` more; `tails`: for each block, the columns that outlive the call."""

    name: str
    channels: int
    dtype: torch.dtype
    rate: int = 1
    extra: int = 0
    margin: int = 0
    num_blocks: int = 1
    tails: tuple[int, ...] = ()
    num_ahead: int = 0  # columns behind a row's own that its reader takes for zeros, as it does the margin then
    is_loaded: bool = True  # False: the tail is saved from column 0 on, but its reader takes it from the slot

    def num_columns(self, num_frames: int) -> int:
        return self.margin + self.rate * num_frames + self.extra + self.num_ahead

    def num_words(self, num_columns: int) -> int:
        return num_columns * self.channels * self.dtype.itemsize // _WORD_BYTES


@dataclass(frozen=True, slots=True)
class Workspace:
    """One bucket's buffers by name, and the pieces that its tails are copied in."""

    num_streams: int
    num_frames: int
    views: dict[str, torch.Tensor]
    pieces: torch.Tensor  # [pieces, PIECE_FIELDS] int64: those to load first
    num_loaded_pieces: int


class Memory:
    def __init__(
        self,
        specs: Sequence[BufferSpec],
        *,
        max_streams: int,
        max_batch: int,
        max_frames: int,
        device: torch.device,
    ) -> None:
        self._specs = sorted(specs, key=lambda spec: not spec.is_loaded)
        self._starts: dict[str, int] = {}
        num_words = 0
        for spec in self._specs:
            self._starts[spec.name] = num_words
            words = spec.num_blocks * max_batch * spec.num_words(spec.num_columns(max_frames))
            num_words += -(-words // _ALIGNMENT_WORDS) * _ALIGNMENT_WORDS
        self.arena = torch.zeros(num_words + _SLACK_WORDS, dtype=torch.int32, device=device)
        self._state_starts: dict[str, int] = {}
        state_words = 0
        for spec in self._specs:
            self._state_starts[spec.name] = state_words
            state_words += sum(spec.num_words(tail) for tail in spec.tails)
        # One row more than streams: idle rows of a call have it.
        self.state = torch.zeros(max_streams + 1, state_words + state_words % 2, dtype=torch.int32, device=device)

    def state_start(self, name: str) -> int:
        """Where in a slot's words the tails of this buffer begin."""
        return self._state_starts[name]

    def workspace(self, num_streams: int, num_frames: int) -> Workspace:
        views = {spec.name: self._view(spec, num_streams, num_frames) for spec in self._specs}
        loaded: list[tuple[int, ...]] = []
        others: list[tuple[int, ...]] = []
        for spec in self._specs:
            (loaded if spec.is_loaded else others).extend(self._pieces(spec, num_streams, num_frames))
        table = torch.tensor(loaded + others, dtype=torch.int64, device=self.arena.device)
        return Workspace(num_streams, num_frames, views, table, len(loaded))

    def edges(self, num_streams: int, num_frames: int) -> torch.Tensor:
        """[pieces, EDGE_FIELDS] int64: what has to be zeros for those who look ahead, see zero_edges_kernel."""
        edges: list[tuple[int, ...]] = []
        for spec in (spec for spec in self._specs if spec.num_ahead):
            row_words = spec.num_words(spec.num_columns(num_frames))
            ahead = spec.num_words(spec.margin + spec.extra)
            for block in range(spec.num_blocks):
                start = self._starts[spec.name] + block * num_streams * row_words
                for offset, length in _cut(spec.num_words(spec.margin)):
                    edges.append((start + offset, row_words, 0, length))
                for offset, length in _cut(spec.num_words(spec.num_ahead)):
                    edges.append((start + ahead + offset, row_words, spec.num_words(spec.rate), length))
        return torch.tensor(edges, dtype=torch.int64, device=self.arena.device)

    def _view(self, spec: BufferSpec, num_streams: int, num_frames: int) -> torch.Tensor:
        columns = spec.num_columns(num_frames)
        words = spec.num_blocks * num_streams * spec.num_words(columns)
        flat = self.arena.narrow(0, self._starts[spec.name], words).view(spec.dtype)
        return flat.view(spec.num_blocks, num_streams, columns, spec.channels)

    def _pieces(self, spec: BufferSpec, num_streams: int, num_frames: int) -> list[tuple[int, ...]]:
        """(word in the slot, word in the arena, words from stream to stream, words per frame advanced, words)."""
        stream_words = spec.num_words(spec.num_columns(num_frames))
        state = self._state_starts[spec.name]
        pieces: list[tuple[int, ...]] = []
        for block, tail in enumerate(spec.tails):
            start = self._starts[spec.name] + block * num_streams * stream_words + spec.num_words(spec.margin - tail)
            words = spec.num_words(tail)
            for offset, length in _cut(words):
                pieces.append((state + offset, start + offset, stream_words, spec.num_words(spec.rate), length))
            state += words
        return pieces


def _cut(num_words: int) -> Iterator[tuple[int, int]]:
    """Offset and length of each piece."""
    for offset in range(0, num_words, WORDS_PER_PIECE):
        yield offset, min(WORDS_PER_PIECE, num_words - offset)
