"""The fixed buffers of one running batch, and the one packed copy that fills them from the host; a block that is begun
before the host knows its tokens gets these from where the device has them.

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
import numpy.typing as npt
import torch

from voicegate.engine import units
from voicegate.engine.device.lanes import Expected
from voicegate.engine.token2wav.flow.block_context import BlockRow
from voicegate.engine.token2wav.flow.block_pool import BlockPool
from voicegate.engine.token2wav.flow.chunking import FRAMES_PER_BLOCK, TOKENS_PER_BLOCK
from voicegate.engine.token2wav.flow.model import ABSENT, FlowModel
from voicegate.engine.token2wav.flow.pre_lookahead import HISTORY_TOKENS
from voicegate.engine.token2wav.flow.stream import BlockStream

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


@dataclass(frozen=True, slots=True)
class Staged:
    """What the host knows of a batch before its last tokens, in memory that `BatchBuffers.send` copies."""

    staging: torch.Tensor  # int64, see `control` above
    table: npt.NDArray[np.int64]  # [R, row width], a view of it
    streams: Sequence[BlockStream]  # as they stand in the table
    order: Sequence[int]  # and their places in the batch


class TakenTokens:
    """A window as the device has it, and on its way to the host."""

    def __init__(self, window: torch.Tensor) -> None:
        is_cuda = window.is_cuda
        self._window = window
        # Made once: to take pinned memory from the driver waits for the device.
        self._on_host = torch.zeros(window.shape, dtype=window.dtype, pin_memory=is_cuda)
        self._is_there = torch.cuda.Event() if is_cuda else None  # type: ignore[no-untyped-call]

    def take(self, last_ids: torch.Tensor) -> None:
        """These [n] stand at its end."""
        self._window[len(self._window) - len(last_ids) :].copy_(last_ids)
        self._on_host.copy_(self._window, non_blocking=True)
        if self._is_there is not None:
            self._is_there.record()

    def are(self, tokens: Sequence[int]) -> bool:
        """Waits for the last that were taken."""
        if self._is_there is not None:
            self._is_there.synchronize()
        return self._on_host.tolist() == list(tokens)

    def contradict(self, tokens: Sequence[int]) -> bool:
        """Whether they are there, and others than these, of which some may be absent."""
        if self._is_there is not None and not self._is_there.query():  # type: ignore[no-untyped-call]
            return False
        return any(token not in (ABSENT, taken) for taken, token in zip(self._on_host.tolist(), tokens, strict=True))


class BatchBuffers:
    def __init__(self, model: FlowModel, pool: BlockPool, *, max_rows: int, max_lines: int) -> None:
        dim = model.estimator.config.dim
        window_size = HISTORY_TOKENS + TOKENS_PER_BLOCK + model.config.lookahead_tokens
        max_blocks = model.max_frames // FRAMES_PER_BLOCK
        self._table_column = WINDOW + window_size
        self._row_width = self._table_column + max_blocks
        self._num_ids = model.config.vocab_size
        device = model.device
        size = _HEADER + max_rows * self._row_width + max_lines
        self._control = torch.zeros(size, dtype=torch.int64, device=device)
        self.taken = TakenTokens(self._control[_HEADER + WINDOW : _HEADER + self._table_column])  # of a batch's row 0
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

        `starts`: each row's first line.
        """
        self.send(self.stage(view, streams, rows, starts), [row.block for row in rows])

    def stage(
        self, view: BatchView, streams: Sequence[BlockStream], rows: Sequence[BlockRow], starts: Sequence[int]
    ) -> Staged:
        """What is known of a batch before its last tokens and its new blocks are.

        Rows stand in the table by their contexts, the longest first, wherever their lines lie: a long one that
        attention starts with last would keep the GPU waiting. The staging tensor is new each time: torch's pinned
        allocator hands it out again only once it was copied.
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
            table[i, BEFORE:WINDOW] = (before, row.num_frames, len(finished), stream.next_frame, start)
            table[i, self._table_column : self._table_column + len(finished)] = finished
            cells[start : start + row.num_frames] = FRAMES_PER_BLOCK * i + frames[: row.num_frames]
        in_order = [streams[number] for number in order]
        self._fill_prompts(view, in_order, [starts[number] for number in order])
        return Staged(staging, table, in_order, order)

    def send(self, staged: Staged, blocks: Sequence[int]) -> None:
        """With the streams' tokens as they are now. `blocks`: the new ones, in the order of the batch."""
        table = staged.table
        for i, (stream, number) in enumerate(zip(staged.streams, staged.order, strict=True)):
            table[i, BLOCK] = blocks[number]
            table[i, WINDOW : self._table_column] = stream.next_window(TOKENS_PER_BLOCK)
        self._control[: len(staged.staging)].copy_(staged.staging, non_blocking=True)

    def send_early(self, staged: Staged, block: int, first_draws: Expected) -> None:
        """Of a first block alone, whose window ends with what only the device has: `taken`. Other ids become tokens."""
        self.send(staged, [block])
        first_draws.mark.precede()
        self.taken.take(first_draws.tensor.clamp(0, self._num_ids - 1))

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
