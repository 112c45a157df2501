"""Solves a batch's blocks with tensors as large as the batch: runs anywhere, and is what the CUDA path must equal."""

from collections.abc import Sequence

import torch

from voicegate.engine import units
from voicegate.engine.device.capture import NOTHING_TO_CAPTURE
from voicegate.engine.flow.batch_size import BatchSize
from voicegate.engine.flow.block_context import BlockContext, BlockRow
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.flow.euler import euler_step
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.stream import BlockStream


class PlainSolver:
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

    def begin(self, streams: Sequence[BlockStream], rows: Sequence[BlockRow]) -> "PlainSolve":
        return PlainSolve(self._model, self._pool, streams, rows)


class PlainSolve:
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
