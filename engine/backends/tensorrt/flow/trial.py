"""How long the blocks of TensorRT's shapes take, by our kernels or by engines: measured before there are streams."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import torch

from voicegate.engine import units
from voicegate.engine.backends.tensorrt.flow.engines import FlowEngines
from voicegate.engine.backends.tensorrt.flow.shape import FlowShape
from voicegate.engine.flow.backend import FlowPrompt
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK, TOKENS_PER_BLOCK
from voicegate.engine.flow.cuda.config import FlowCudaConfig
from voicegate.engine.flow.cuda.solver import CudaSolver
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.prompt import load_prompt
from voicegate.engine.flow.stream import BlockRow, BlockStream

_NUM_WARM_RUNS: Final = 3
# Blocks in a row. Higher -> less noise; lower -> a shorter start.
_NUM_RUNS: Final = 20

Blocks = tuple[list[BlockStream], list[BlockRow]]


class FlowTrial:
    """A pool of random context, and blocks of streams that are nobody's behind it."""

    def __init__(
        self,
        model: FlowModel,
        cuda: FlowCudaConfig,
        shapes: Sequence[FlowShape],
        *,
        kv_dtype: torch.dtype,
    ) -> None:
        self._model = model
        # Sizes that engines do not compute in these buckets are not measured.
        buckets = tuple(sorted({shape.num_lines for shape in shapes}))
        self._cuda = replace(cuda, frame_buckets=buckets, max_batches=1)
        self._contexts = {shape: measured_blocks(shape, shapes) for shape in shapes}
        num_blocks = max(shape.num_rows * (count + 1) for shape, count in self._contexts.items())
        self.pool = BlockPool(
            model.config.estimator,
            num_steps=model.schedule.num_steps,
            num_blocks=num_blocks,
            device=model.device,
            dtype=model.estimator.dtype,
            kv_dtype=kv_dtype,
        )
        self.pool.tails.normal_()
        for block in self.pool.keys_values:  # zeros would take less power, and so less time
            block.copy_(torch.randn(block.shape, device=model.device))
        speaker = torch.ones(model.config.speaker_dim)
        nothing = FlowPrompt(torch.empty(0, dtype=torch.int64), torch.empty(0, units.NUM_MELS), speaker)
        self._prompt = load_prompt(model, nothing)

    @torch.inference_mode()
    def block_ms(self, engines: FlowEngines | None) -> dict[FlowShape, float]:
        """Time of a batch of each shape, from its copy to the device to its last Euler step; copies of context
        included.

        `engines`: None: our kernels. On the current stream, which is not the default one. Needs a GPU; alone on it.
        """
        solver = CudaSolver(self._model, self.pool, self._cuda, engines=engines)
        torch.cuda.synchronize()  # what was loaded lies on another stream
        solver.graphs.capture()
        return {shape: self._solve_ms(solver, self.blocks(shape)) for shape in self._contexts}

    def blocks(self, shape: FlowShape) -> Blocks:
        """Whole ones, each behind a context of its own, which takes about the middle of what the shape is for."""
        streams, rows = [], []
        num_finished = self._contexts[shape]
        for row in range(shape.num_rows):
            stream = BlockStream(self._model, self._prompt)
            stream.append([0] * (TOKENS_PER_BLOCK * (num_finished + 1)))
            stream.finish()
            first = row * (num_finished + 1)
            stream.blocks = list(range(first, first + num_finished))
            streams.append(stream)
            rows.append(BlockRow(tuple(stream.blocks), first + num_finished, FRAMES_PER_BLOCK))
        return streams, rows

    def _solve_ms(self, solver: CudaSolver, blocks: Blocks) -> float:
        started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        for run in range(_NUM_WARM_RUNS + _NUM_RUNS):
            if run == _NUM_WARM_RUNS:
                started.record()
            solve = solver.begin(*blocks)
            for _ in range(self._model.schedule.num_steps):
                solve.advance()
            solve.release()
        ended.record()
        ended.synchronize()
        return float(started.elapsed_time(ended)) / _NUM_RUNS


def measured_blocks(shape: FlowShape, shapes: Sequence[FlowShape]) -> int:
    """Finished ones of each row: midway from where the next smaller shape's contexts end."""
    smaller = [
        other.context_frames
        for other in shapes
        if other.num_rows == shape.num_rows and other.context_frames < shape.context_frames
    ]
    below = max(smaller, default=0)
    return -(-(below + shape.context_frames) // (2 * FRAMES_PER_BLOCK))
