"""A batch's Euler steps by a TensorRT engine, between the same buffers and the same pool as our kernels.

What an engine wants in one piece is copied for every step: finished blocks' keys, values and tails come from the pool,
the new block's go where our kernels put them. So a stream may have every block computed the other way.
"""

import torch

from voicegate.engine.backends.tensorrt.flow.gather_kernels import gather_context
from voicegate.engine.backends.tensorrt.flow.shape import NEVER, FlowShape
from voicegate.engine.backends.tensorrt.library import LoadedEngine, current_stream
from voicegate.engine.backends.tensorrt.shared_tensors import SharedTensors
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.flow.cuda.buffers import (
    BEFORE,
    BLOCK,
    FIRST_FRAME,
    NUM_FINISHED,
    NUM_FRAMES,
    START,
    BatchView,
)
from voicegate.engine.flow.cuda.estimator import FixedShapeEstimator
from voicegate.engine.flow.cuda.tensors import FlowTensors

# Kept by a solve for all of its steps; other batches' may run between them.
OF_SOLVE = ("base", "cos", "sin", "mask")
# Needed by a step while it runs.
OF_STEP = ("x", "modulation", "width", "tails", "context", "next_x", "new_tails", "new_context")


class TensorrtEstimator:
    """Implements BatchEstimator, for one batch's buffers."""

    def __init__(
        self,
        kernels: FixedShapeEstimator,
        tensors: FlowTensors,
        batch: BatchView,
        shape: FlowShape,
        engine: LoadedEngine,
        shared: SharedTensors,
    ) -> None:
        """`shared`: of OF_STEP. Raises TensorrtError."""
        self._kernels = kernels
        self._tensors = tensors
        self.shape = shape
        device = batch.x.device
        self._of_solve = {
            name: torch.zeros(engine.tensors[name].shape, dtype=engine.tensors[name].dtype, device=device)
            for name in OF_SOLVE
        }
        self._of_step = {name: shared.of(engine, name) for name in OF_STEP}
        self._bound = engine.bind(shared.bindings(engine) | self._of_solve, shared.scratch)
        # Line of every frame of every row.
        self._lines = torch.zeros(shape.num_lines, dtype=torch.int64, device=device)
        # By row: where the pool has the new block's steps and those of the one before it.
        self._blocks = torch.zeros(2, shape.num_rows, dtype=torch.int64, device=device)
        self._places = torch.zeros_like(self._blocks)  # the same, of the step at hand

    def begin(self, batch: BatchView) -> None:
        self._kernels.begin(batch)
        tensors, shape, given = self._tensors, self.shape, self._of_solve
        rows, device = batch.rows, batch.x.device
        frames = torch.arange(shape.num_frames, device=device)
        # Behind its last frame a row has that one again: another row's there could be NaN, and be looked at.
        own = torch.minimum(frames, (rows[:, NUM_FRAMES, None] - 1).clamp_(min=0))
        self._lines.copy_((rows[:, START, None] + own).flatten())
        torch.index_select(batch.base, 0, self._lines, out=given["base"].flatten(0, 1))
        positions = (rows[:, FIRST_FRAME, None] + own).flatten()
        torch.index_select(tensors.cosines, 0, positions, out=given["cos"].flatten(0, 1))
        torch.index_select(tensors.sines, 0, positions, out=given["sin"].flatten(0, 1))
        before = torch.arange(shape.context_frames, device=device) < FRAMES_PER_BLOCK * rows[:, NUM_FINISHED, None]
        is_there = torch.cat((before, frames < rows[:, NUM_FRAMES, None]), dim=1)
        given["mask"].zero_().masked_fill_(~is_there[:, None, None], NEVER)
        torch.mul(rows[:, BLOCK : BEFORE + 1].T, len(tensors.widths), out=self._blocks)

    def advance(self, batch: BatchView) -> None:
        tensors, pool, io = self._tensors, self._tensors.pool, self._of_step
        torch.add(self._blocks, batch.step, out=self._places)
        new, before = self._places
        tails, keys_values = pool.tails.flatten(0, 1), pool.keys_values.flatten(0, 1)
        torch.index_select(tails, 0, before, out=io["tails"][0])
        torch.index_select(tensors.modulations, 0, batch.step, out=io["modulation"])
        torch.index_select(tensors.widths, 0, batch.step, out=io["width"][0])
        torch.index_select(batch.x, 0, self._lines, out=io["x"][0].flatten(0, 1))
        gather_context(pool.keys_values, batch, io["context"])

        self._bound.enqueue(current_stream(batch.x.device))

        torch.index_select(io["next_x"][0].flatten(0, 1), 0, batch.cells, out=batch.x)
        tails.index_copy_(0, new, io["new_tails"][0])
        found = io["new_context"].transpose(0, 1).flatten(3, 4).to(keys_values.dtype)  # [R, depth, 2, C * H, n, d]
        # As integers of their size: not every type of a pool can be indexed.
        whole = torch.uint8 if keys_values.dtype.itemsize == 1 else keys_values.dtype
        keys_values.view(whole).index_copy_(0, new, found.view(whole))
        batch.step.add_(1)
