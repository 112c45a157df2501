"""One new block of each of several streams, seen by the estimator: reads finished blocks, fills the new ones.

This is the only place that touches the pool's tensors, so a paged-attention kernel replaces one method.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.flow.estimator import CONV_HISTORY


@dataclass(frozen=True, slots=True)
class BlockRow:
    """One stream's row of a batch."""

    finished: tuple[int, ...]  # block table: all that lies before, in order
    block: int  # where the new frames' keys, values and conv inputs go
    num_frames: int  # of the new block; below 50 only in a stream's last


class BlockContext:
    """Implements FrameContext. Rows shorter than the batch's n are padded at the end; nobody attends to padding."""

    def __init__(self, pool: BlockPool, rows: Sequence[BlockRow]) -> None:
        self._keys_values = pool.keys_values
        self._tails = pool.tails
        self._rows = rows
        device = pool.tails.device
        before = [row.finished[-1] if row.finished else pool.before_first for row in rows]
        self._before = torch.tensor(before, device=device)
        self._new = torch.tensor([row.block for row in rows], device=device)

    def with_history(self, hidden: torch.Tensor, *, step: int, conv: int) -> torch.Tensor:
        tails = self._tails[:, step, conv, : len(hidden)]  # [blocks, C, 30, D]; C is 1 without guidance
        if hidden.shape[2] == FRAMES_PER_BLOCK:
            # A shorter row's tail is wrong here, but nothing ever follows a stream's last block.
            tails.index_copy_(0, self._new, hidden[:, :, -CONV_HISTORY:].transpose(0, 1))
        return torch.cat((tails.index_select(0, self._before).transpose(0, 1), hidden), dim=2)

    def attend(self, qkv: torch.Tensor, *, step: int, layer: int) -> torch.Tensor:
        """Row by row, each over its own context: no mask, and no padding of short contexts."""
        halves, num_rows, num_frames, _, heads, channels = qkv.shape
        out = qkv.new_empty(halves, num_rows, num_frames, heads, channels)
        for i, row in enumerate(self._rows):
            keys, values = self._extend(row, qkv[:, i, : row.num_frames, 1:], step=step, layer=layer)
            queries = qkv[:, i, :, 0].transpose(1, 2).reshape(halves * heads, num_frames, channels)
            # Explicit products: a fifth faster here than scaled_dot_product_attention's CPU kernel.
            weights = torch.bmm(queries, keys.mT).softmax(dim=-1)
            attended = torch.bmm(weights, values).view(halves, heads, num_frames, channels)
            out[:, i].copy_(attended.transpose(1, 2))
        return out.flatten(3)

    def _extend(self, row: BlockRow, new: torch.Tensor, *, step: int, layer: int) -> torch.Tensor:
        """Store the new frames' keys and values [C, n, 2, H, d]; -> [2, C * H, all frames so far, d]."""
        halves, num_frames, _, heads, channels = new.shape
        kept = halves * heads
        block = self._keys_values[row.block, step, layer, :, :kept, : row.num_frames]  # [2, C * H, n, d]
        block.view(2, halves, heads, num_frames, channels).copy_(new.permute(2, 0, 3, 1, 4))
        if not row.finished:
            return block
        before = [self._keys_values[finished, step, layer, :, :kept] for finished in row.finished]
        return torch.cat((*before, block), dim=2)
