"""Solves a batch's blocks with tensors as large as the batch: runs anywhere, and is what the CUDA path must equal."""

from collections.abc import Sequence

import torch

from voicegate.engine import units
from voicegate.engine.device.capture import NOTHING_TO_CAPTURE
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK, BatchSize
from voicegate.engine.flow.estimator import CONV_HISTORY
from voicegate.engine.flow.euler import euler_step
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.stream import BlockRow, BlockStream


class TorchSolver:
    """Implements BlockSolver; as many batches as there are streams."""

    name = "torch"
    graphs = NOTHING_TO_CAPTURE

    def __init__(self, model: FlowModel, pool: BlockPool, *, max_streams: int) -> None:
        self.num_free_batches = max_streams
        self._max_streams = max_streams
        self._model = model
        self._pool = pool

    def batch_size(self, max_rows: int) -> BatchSize:
        num_rows = min(max_rows, self._max_streams)
        return BatchSize(num_rows, num_rows * FRAMES_PER_BLOCK)

    def begin(self, streams: Sequence[BlockStream], rows: Sequence[BlockRow]) -> "TorchSolve":
        return TorchSolve(self._model, self._pool, streams, rows)


class TorchSolve:
    """Implements BlockSolve."""

    @torch.inference_mode()
    def __init__(
        self, model: FlowModel, pool: BlockPool, streams: Sequence[BlockStream], rows: Sequence[BlockRow]
    ) -> None:
        self._model = model
        self._step = 0
        num_frames = max(row.num_frames for row in rows)
        self._base = _input_base(model, streams, num_frames)
        spans = [slice(stream.next_frame, stream.next_frame + num_frames) for stream in streams]
        self._x = torch.stack([model.noise[span] for span in spans])  # [B, n, 80]
        self._rotation = torch.stack([model.rotations[span] for span in spans])  # [B, n, d / 2]
        self._context = BlockContext(pool, rows)

    @torch.inference_mode()
    def advance(self) -> None:
        velocity = self._model.estimator.velocity(
            self._x, self._base, self._rotation, step=self._step, context=self._context
        )
        width = self._model.schedule.widths[self._step]
        self._x = euler_step(self._x, velocity, width=width, cfg_rate=self._model.config.cfg_rate)
        self._step += 1

    def frames(self, wanted: Sequence[slice | None]) -> list[torch.Tensor]:
        # Copies made outside of inference mode: ordinary tensors for whoever comes next.
        return [
            x[span].T.clone(memory_format=torch.contiguous_format)
            for x, span in zip(self._x, wanted, strict=True)
            if span is not None
        ]

    def release(self) -> None:
        """Nothing of it is shared."""


def _input_base(model: FlowModel, streams: Sequence[BlockStream], num_frames: int) -> torch.Tensor:
    """[C, B, n, D]: what the estimator's input projection makes of everything but x."""
    mu = model.mu([stream.next_window(num_frames // units.FRAMES_PER_TOKEN) for stream in streams])
    cond = torch.zeros_like(mu)
    for row, stream in zip(cond, streams, strict=True):
        known = stream.next_prompt_mel(num_frames)
        row[: len(known)] = known
    speaker_bias = torch.stack([stream.prompt.speaker_bias for stream in streams])
    return model.input_base(cond, mu, speaker_bias)


class BlockContext:
    """Implements FrameContext. Rows shorter than the batch's n are padded at the end; nobody attends to padding.

    It reads finished blocks, and fills the new ones.
    """

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
