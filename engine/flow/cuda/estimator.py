"""One Euler step, and what precedes the first, over a batch's fixed buffers: what a CUDA graph holds.

Nothing here depends on the host's numbers but the shape: the Euler step, the lengths and the block tables are read
on the device, so one graph per (buffers, bucket) serves all steps of all batches.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from voicegate.engine.flow.block_pool import CFG_HALVES
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.flow.cuda.buffers import FIRST_FRAME, WINDOW, BatchView
from voicegate.engine.flow.cuda.ops import StepOps
from voicegate.engine.flow.cuda.tensors import FlowTensors
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.modulation import ROWS_PER_LAYER
from voicegate.engine.flow.stream import BlockRow

# Rows of the modulation table within a layer's; a shift follows its scale.
_ATTN_SCALE, _ATTN_GATE, _FF_SCALE, _FF_GATE = 0, 2, 3, 5


class BatchEstimator(Protocol):
    """It computes a bucket's batches: our kernels, or an engine that takes their place."""

    def begin(self, batch: BatchView) -> None:
        """After BatchBuffers.fill: what all steps share, and x at time 0."""

    def advance(self, batch: BatchView) -> None:
        """Euler step number `batch.step`: x, the pool's new blocks and the number itself move on."""


class StepShape(Protocol):
    """The shape of an engine's batches. Hashable."""

    @property
    def num_rows(self) -> int: ...

    @property
    def num_lines(self) -> int: ...


class StepEngines(Protocol):
    """Engines of the Euler step, each for batches of one shape: an addition has them."""

    @property
    def name(self) -> str: ...

    @property
    def shapes(self) -> Sequence[StepShape]: ...

    def shape_for(self, rows: Sequence[BlockRow], num_lines: int) -> StepShape | None:
        """The shape of the engine that is to compute a batch in the bucket of so many lines; None: our kernels do."""

    def estimator(
        self,
        shape: Any,  # of `shapes`
        kernels: "FixedShapeEstimator",
        tensors: FlowTensors,
        batch: BatchView,
    ) -> BatchEstimator:
        """For one batch's buffers."""


class FixedShapeEstimator:
    """Implements BatchEstimator."""

    def __init__(self, model: FlowModel, tensors: FlowTensors, ops: StepOps) -> None:
        self._model = model
        self._tensors = tensors
        self._ops = ops

    def begin(self, batch: BatchView) -> None:
        """After BatchBuffers.fill: the input projection of all but x, and x at time 0."""
        mu = self._model.mu_of(batch.rows[:, WINDOW : batch.table_column])  # [R, 50, 80]
        rows, frames = batch.cells // FRAMES_PER_BLOCK, batch.cells % FRAMES_PER_BLOCK
        mu, speaker = mu[rows, frames], batch.speaker[rows]
        # Each line as a batch of its own: the lines of a row share nothing here.
        base = self._model.estimator.conditioned_base(batch.cond[:, None], mu[:, None], speaker)
        batch.base.copy_(base[:, 0])
        batch.x.copy_(self._model.noise[batch.rows[rows, FIRST_FRAME] + frames])

    def advance(self, batch: BatchView) -> None:
        tensors, ops = self._tensors, self._ops
        shape = (CFG_HALVES, batch.num_lines, tensors.config.dim)
        hidden = torch.empty(shape, dtype=torch.float32, device=batch.x.device)
        ops.embed(tensors, batch, hidden)
        dtype = tensors.product_dtype
        normed = ops.norm(tensors, batch, hidden, update=None, gate_row=0, scale_row=_ATTN_SCALE, dtype=dtype)
        for number, layer in enumerate(tensors.layers):
            row = number * ROWS_PER_LAYER
            qkv = ops.linear(tensors, normed, layer.qkv_weight, layer.qkv_bias)
            attended = ops.attend(tensors, batch, qkv, number, dtype=dtype)
            update = ops.update(tensors, attended, layer.attn_out_weight, layer.attn_out_bias)
            normed = ops.norm(
                tensors, batch, hidden, update=update, gate_row=row + _ATTN_GATE, scale_row=row + _FF_SCALE, dtype=dtype
            )
            wide = ops.widen(tensors, normed, layer.ff_in_weight, layer.ff_in_bias)
            update = ops.update(tensors, wide, layer.ff_out_weight, layer.ff_out_bias)
            # The next layer's first norm; behind the last layer's rows are those of the output's, a small product.
            if number + 1 == len(tensors.layers):
                dtype = tensors.dtype
            normed = ops.norm(
                tensors,
                batch,
                hidden,
                update=update,
                gate_row=row + _FF_GATE,
                scale_row=row + ROWS_PER_LAYER,
                dtype=dtype,
            )
        ops.euler(tensors, batch, normed)
        batch.step.add_(1)
