"""The fixed buffers of one running batch, and the one packed copy that fills them from the host.

A batch's blocks lie one behind the other: frame i of row r is line START[r] + i; lines beyond the last are padding.
All numbers that differ from batch to batch - which blocks, how many frames, how many Euler steps so far - are read by
the kernels from `control`, one int64 tensor: [Euler step | row 0 | row 1 | ... | cell of line 0 | of line 1 | ...].
A row is [new block, block before, frames, finished blocks, first frame, first line | token window | block table];
a line's cell is 50 * row + frame of the row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from voicegate.engine import units
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK, TOKENS_PER_BLOCK
from voicegate.engine.flow.model import HISTORY_TOKENS, FlowModel
from voicegate.engine.flow.stream import BlockRow, BlockStream

# Columns of a row.
BLOCK: Final = 0
BEFORE: Final = 1
NUM_FRAMES: Final = 2  # 0 in a padding row
NUM_FINISHED: Final = 3
FIRST_FRAME: Final = 4
START: Final = 5  # its first line
WINDOW: Final = 6

_HEADER: Final = 1  # the Euler step


@dataclass(frozen=True, slots=True)
class BatchView:
    """The buffers as a batch of one bucket sees them: R rows with L lines in all. Contiguous, addresses fixed."""

    step: torch.Tensor  # [1] int64
    rows: torch.Tensor  # [R, row width] int64
    cells: torch.Tensor  # [L] int64, 0 for padding
    table_column: int  # where the block table begins in a row
    cond: torch.Tensor  # [L, 80] float32: the prompt's mel where the block has prompt frames
    speaker: torch.Tensor  # [R, D] float32
    base: torch.Tensor  # [L, D] float32, see Estimator.conditioned_base
    x: torch.Tensor  # [L, 80] float32, the solver's state

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    @property
    def num_lines(self) -> int:
        return len(self.x)


class BatchBuffers:
    def __init__(self, model: FlowModel, pool: BlockPool, *, max_rows: int, max_lines: int) -> None:
        dim = model.estimator.config.dim
        window_size = HISTORY_TOKENS + TOKENS_PER_BLOCK + model.config.lookahead_tokens
        max_blocks = model.max_frames // FRAMES_PER_BLOCK
        self._table_column = WINDOW + window_size
        self._row_width = self._table_column + max_blocks
        device = model.device
        size = _HEADER + max_rows * self._row_width + max_lines
        self._control = torch.zeros(size, dtype=torch.int64, device=device)
        self._cond = torch.zeros(max_lines, units.NUM_MELS, device=device)
        self._num_dirty_lines = 0  # of `cond`: all beyond are zero
        self._speaker = torch.zeros(max_rows, dim, device=device)
        self._base = torch.zeros(max_lines, dim, device=device)
        self._x = torch.zeros(max_lines, units.NUM_MELS, device=device)
        self._is_pinned = device.type == "cuda"
        # A row that nobody waits for: no frame, no context.
        self._padding_row = np.zeros(self._row_width, dtype=np.int64)
        self._padding_row[[BLOCK, BEFORE]] = pool.scratch, pool.before_first
        self._padding_row[self._table_column :] = pool.scratch

    def view(self, num_rows: int, num_lines: int) -> BatchView:
        end_of_rows = _HEADER + num_rows * self._row_width
        return BatchView(
            step=self._control[:_HEADER],
            rows=self._control[_HEADER:end_of_rows].view(num_rows, self._row_width),
            cells=self._control[end_of_rows : end_of_rows + num_lines],
            table_column=self._table_column,
            cond=self._cond[:num_lines],
            speaker=self._speaker[:num_rows],
            base=self._base[:num_lines],
            x=self._x[:num_lines],
        )

    def fill(
        self, view: BatchView, streams: Sequence[BlockStream], rows: Sequence[BlockRow], starts: Sequence[int]
    ) -> None:
        """Everything that the host knows of a batch; the rest of the bucket is padding. Enqueues, does not wait.

        `starts`: each row's first line. Rows stand in the table by their contexts, the longest first, wherever their
        lines lie: a long one that attention starts with last would keep the GPU waiting. The staging tensor is new each
        time: torch's pinned allocator hands it out again only once it was copied.
        """
        order = sorted(range(len(rows)), key=lambda number: len(rows[number].finished), reverse=True)
        end_of_rows = _HEADER + view.num_rows * self._row_width
        size = end_of_rows + view.num_lines
        staging = torch.empty(size, dtype=torch.int64, pin_memory=self._is_pinned)
        control = staging.numpy()
        control[0] = 0
        table = control[_HEADER:end_of_rows].reshape(view.num_rows, self._row_width)
        table[:] = self._padding_row
        cells = control[end_of_rows:]
        cells[:] = 0
        before_first = self._padding_row[BEFORE]
        frames = np.arange(FRAMES_PER_BLOCK)
        for i, number in enumerate(order):
            stream, row, start = streams[number], rows[number], starts[number]
            finished = row.finished
            before = finished[-1] if finished else before_first
            table[i, :WINDOW] = (row.block, before, row.num_frames, len(finished), stream.next_frame, start)
            table[i, WINDOW : self._table_column] = stream.next_window(TOKENS_PER_BLOCK)
            table[i, self._table_column : self._table_column + len(finished)] = finished
            cells[start : start + row.num_frames] = FRAMES_PER_BLOCK * i + frames[: row.num_frames]
        in_order = [streams[number] for number in order]
        self._fill_prompts(view, in_order, [starts[number] for number in order])
        self._control[:size].copy_(staging, non_blocking=True)

    def _fill_prompts(self, view: BatchView, streams: Sequence[BlockStream], starts: Sequence[int]) -> None:
        if self._num_dirty_lines:  # seldom: few batches have a first block
            self._cond[: self._num_dirty_lines].zero_()
            self._num_dirty_lines = 0
        targets = list(view.speaker[: len(streams)].unbind())
        sources = [stream.prompt.speaker_bias for stream in streams]
        for stream, start in zip(streams, starts, strict=True):
            num_frames = stream.next_num_prompt_frames
            if num_frames:
                targets.append(view.cond[start : start + num_frames])
                sources.append(stream.next_prompt_mel(num_frames))
                self._num_dirty_lines = max(self._num_dirty_lines, start + num_frames)
        if targets:
            torch._foreach_copy_(targets, sources)  # one launch for all
