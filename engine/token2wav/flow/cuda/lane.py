"""The fixed buffers of one running batch, and the one packed copy that fills them from the host.

All numbers that differ from batch to batch - which blocks, how many frames, how many Euler steps so far - are read
by the kernels from `control`, one int64 tensor: [Euler step | row 0 | row 1 | ...]. A row is
[new block, block before, frames, finished blocks, first frame | token window | block table].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from engine import units
from engine.token2wav.flow.block_context import BlockRow
from engine.token2wav.flow.block_pool import BlockPool
from engine.token2wav.flow.model import FlowModel
from engine.token2wav.flow.pre_lookahead import HISTORY_TOKENS
from engine.token2wav.flow.stream import FlowStream

# Columns of a row.
BLOCK: Final = 0
BEFORE: Final = 1
NUM_FRAMES: Final = 2
NUM_FINISHED: Final = 3
FIRST_FRAME: Final = 4
WINDOW: Final = 5

_HEADER: Final = 1  # the Euler step


@dataclass(frozen=True, slots=True)
class BlockBuffers:
    """A lane's buffers as a batch of one shape sees them: B rows of n frames. Contiguous, addresses fixed."""

    step: torch.Tensor  # [1] int64
    rows: torch.Tensor  # [B, row width] int64
    table_column: int  # where the block table begins in a row
    cond: torch.Tensor  # [B, n, 80] float32: the prompt's mel where the block has prompt frames
    speaker: torch.Tensor  # [B, D] float32
    base: torch.Tensor  # [B, n, D] float32, see Estimator.conditioned_base
    x: torch.Tensor  # [B, n, 80] float32, the solver's state

    @property
    def num_rows(self) -> int:
        return self.x.shape[0]

    @property
    def num_frames(self) -> int:
        return self.x.shape[1]


class Lane:
    def __init__(self, model: FlowModel, pool: BlockPool, *, max_batch: int) -> None:
        dim = model.estimator.config.dim
        max_window = HISTORY_TOKENS + units.TOKENS_PER_BLOCK + model.config.lookahead_tokens
        max_blocks = model.max_frames // units.FRAMES_PER_BLOCK
        self._lookaround = HISTORY_TOKENS + model.config.lookahead_tokens
        self._table_column = WINDOW + max_window
        self._row_width = self._table_column + max_blocks
        max_cells = max_batch * units.FRAMES_PER_BLOCK
        device = model.device
        self._control = torch.zeros(_HEADER + max_batch * self._row_width, dtype=torch.int64, device=device)
        self._cond = torch.zeros(max_cells, units.NUM_MELS, device=device)
        self._speaker = torch.zeros(max_batch, dim, device=device)
        self._base = torch.zeros(max_cells, dim, device=device)
        self._x = torch.zeros(max_cells, units.NUM_MELS, device=device)
        self._is_pinned = device.type == "cuda"
        # A row that nobody waits for: no context, and its block is the pool's scratch.
        self._padding_row = np.zeros(self._row_width, dtype=np.int64)
        self._padding_row[[BLOCK, BEFORE]] = pool.scratch, pool.before_first
        self._padding_row[self._table_column :] = pool.scratch

    def buffers(self, num_rows: int, num_frames: int) -> BlockBuffers:
        cells = num_rows * num_frames
        return BlockBuffers(
            step=self._control[:_HEADER],
            rows=self._control[_HEADER : _HEADER + num_rows * self._row_width].view(num_rows, self._row_width),
            table_column=self._table_column,
            cond=self._cond[:cells].view(num_rows, num_frames, units.NUM_MELS),
            speaker=self._speaker[:num_rows],
            base=self._base[:cells].view(num_rows, num_frames, -1),
            x=self._x[:cells].view(num_rows, num_frames, units.NUM_MELS),
        )

    def fill(self, buffers: BlockBuffers, streams: Sequence[FlowStream], rows: Sequence[BlockRow]) -> None:
        """Everything that the host knows of a batch; the rest of the bucket is padding. Enqueues, does not wait.

        The staging tensor is new each time: torch's pinned allocator hands it out again only once it was copied.
        """
        size = _HEADER + buffers.num_rows * self._row_width
        staging = torch.empty(size, dtype=torch.int64, pin_memory=self._is_pinned)
        control = staging.numpy()
        control[0] = 0
        table = control[_HEADER:].reshape(buffers.num_rows, self._row_width)
        table[:] = self._padding_row
        table[:, NUM_FRAMES] = buffers.num_frames
        num_tokens = buffers.num_frames // units.FRAMES_PER_TOKEN
        window_end = WINDOW + num_tokens + self._lookaround
        before_first = self._padding_row[BEFORE]
        for cells, stream, row in zip(table, streams, rows, strict=False):
            finished = row.finished
            before = finished[-1] if finished else before_first
            cells[:WINDOW] = (row.block, before, row.num_frames, len(finished), stream.next_frame)
            cells[WINDOW:window_end] = stream.next_window(num_tokens)
            cells[self._table_column : self._table_column + len(finished)] = finished
        self._control[:size].copy_(staging, non_blocking=True)
        self._fill_prompts(buffers, streams)

    def _fill_prompts(self, buffers: BlockBuffers, streams: Sequence[FlowStream]) -> None:
        buffers.cond.zero_()
        targets = list(buffers.speaker.unbind())[: len(streams)]
        sources = [stream.prompt.speaker_bias for stream in streams]
        for i, stream in enumerate(streams):
            if stream.next_num_prompt_frames:
                mel = stream.next_prompt_mel(buffers.num_frames)
                targets.append(buffers.cond[i, : len(mel)])
                sources.append(mel)
        if targets:
            torch._foreach_copy_(targets, sources)  # one launch for all
