"""Solves a batch's blocks in fixed buffers: every Euler step is one CUDA graph replay, or the same calls eagerly.

Nothing waits, and nothing is copied back: all work goes to the current CUDA stream, which must always be the same one.
"""

from collections.abc import Sequence
from enum import Enum
from itertools import accumulate

import torch

from voicegate.engine.device.cuda_graphs import BucketedWork
from voicegate.engine.device.overlap import can_overlap
from voicegate.engine.flow.backend import BatchesExhausted
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.chunking import BatchSize
from voicegate.engine.flow.cuda.buffers import BatchBuffers, BatchView
from voicegate.engine.flow.cuda.config import FlowCudaConfig
from voicegate.engine.flow.cuda.estimator import BatchEstimator, FixedShapeEstimator, StepEngines, StepShape
from voicegate.engine.flow.cuda.ops import FLOAT8_STEP_OPS, STEP_OPS, StepOps
from voicegate.engine.flow.cuda.tensors import FlowTensors, flow_tensors, in_float8
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.stream import BlockRow, BlockStream


class Pass(Enum):
    BEGIN = "begin"
    STEP = "Euler step"


_Place = tuple[int, BatchSize | StepShape]  # which buffers; bucket, of an engine its shape
_Key = tuple[_Place, Pass]


class CudaSolver:
    """Implements BlockSolver."""

    def __init__(
        self,
        model: FlowModel,
        pool: BlockPool,
        config: FlowCudaConfig,
        *,
        ops: StepOps = STEP_OPS,
        float8_ops: StepOps = FLOAT8_STEP_OPS,
        engines: StepEngines | None = None,
    ) -> None:
        """`engines`: for the batches that they have a shape for; our kernels compute all others.

        Other `ops` are for tests: torch's operations run on a CPU too, quicker than Triton's interpreter.

        Raises ValueError for graphs on a device without; and as `engines` for those that do not fit.
        """
        if config.has_graphs and model.device.type != "cuda":
            raise ValueError(f"CUDA graphs were asked for on {model.device}: set has_graphs=False")
        self._config = config
        self._engines = engines
        tensors = flow_tensors(model, pool, is_pdl=can_overlap(model.device))
        self._estimator = FixedShapeEstimator(model, tensors, ops)
        # For batches of float8_frames and more.
        self._large_estimator = (
            FixedShapeEstimator(model, in_float8(tensors), float8_ops)
            if config.product_dtype is not None
            else self._estimator
        )
        largest = config.sizes[-1]
        self._buffers = [
            BatchBuffers(model, pool, max_rows=largest.num_rows, max_lines=largest.num_frames)
            for _ in range(config.max_batches)
        ]
        self._views: dict[_Place, BatchView] = {
            (number, size): buffers.view(size.num_rows, size.num_frames)
            for size in reversed(config.sizes)
            for number, buffers in enumerate(self._buffers)
        }
        self._of_engines: dict[_Place, BatchEstimator] = {}
        if engines is not None:
            self._add_engines(engines, tensors)
        self._free = list(reversed(range(config.max_batches)))
        keys = [(place, kind) for place in self._views for kind in Pass]
        self.graphs = BucketedWork(
            self._work,
            keys,
            pad=self._pad,
            # The other buffers' kernels are the same; but an engine must have run where it is captured.
            compiled_keys=[key for key in keys if key[0][0] == 0 or key[0] in self._of_engines],
            is_eager=not config.has_graphs,
        )

    def _add_engines(self, engines: StepEngines, tensors: FlowTensors) -> None:
        for shape in engines.shapes:
            for number, buffers in enumerate(self._buffers):
                view = buffers.view(shape.num_rows, shape.num_lines)
                self._views[number, shape] = view
                self._of_engines[number, shape] = engines.estimator(shape, self._estimator, tensors, view)

    @property
    def name(self) -> str:
        return "cuda" if self._engines is None else self._engines.name

    def batch_size(self, max_rows: int) -> BatchSize:
        return self._config.batch_size(max_rows)

    @property
    def num_free_batches(self) -> int:
        return len(self._free)

    def begin(self, streams: Sequence[BlockStream], rows: Sequence[BlockRow]) -> "CudaSolve":
        if not self._free:
            raise BatchesExhausted(f"all {len(self._buffers)} batches run: finish one, or build the flow for more")
        place = self._place(rows)
        number, buffers, view = self._free.pop(), self._buffers[place[0]], self._views[place]
        ends = list(accumulate(row.num_frames for row in rows))
        starts = [0, *ends[:-1]]
        try:
            buffers.fill(view, streams, rows, starts)
            self.graphs.run((place, Pass.BEGIN))
        except BaseException:
            self._free.append(number)
            raise
        return CudaSolve(self, place, view, starts)

    def _place(self, rows: Sequence[BlockRow]) -> _Place:
        """The place of a batch that begins next. Raises ValueError for more rows than fit one."""
        size = self._config.size_for([row.num_frames for row in rows])
        shape = self._engines.shape_for(rows, size.num_frames) if self._engines is not None else None
        return self._free[-1], shape or size

    def advance(self, place: _Place) -> None:
        self.graphs.run((place, Pass.STEP))

    def free(self, place: _Place) -> None:
        assert place[0] not in self._free, "two batches had the same buffers"
        self._free.append(place[0])

    def _pad(self, key: _Key) -> None:
        place, _ = key
        self._buffers[place[0]].fill(self._views[place], (), (), ())

    def _work(self, key: _Key) -> None:
        place, kind = key
        view = self._views[place]
        estimator = self._of_engines.get(place)
        if estimator is None:
            is_large = view.num_lines >= self._config.float8_frames
            estimator = self._large_estimator if is_large else self._estimator
        match kind:
            case Pass.BEGIN:
                estimator.begin(view)
            case Pass.STEP:
                estimator.advance(view)


class CudaSolve:
    """Implements BlockSolve."""

    def __init__(self, solver: CudaSolver, place: _Place, view: BatchView, starts: Sequence[int]) -> None:
        self._solver = solver
        self._place = place
        self._starts = starts  # each row's first line
        self.view = view

    def advance(self) -> None:
        self._solver.advance(self._place)

    def frames(self, wanted: Sequence[slice | None]) -> list[torch.Tensor]:
        """Columns of one copy, taken in stream order: the buffers may be another batch's right after."""
        mels = self.view.x.mT.clone(memory_format=torch.contiguous_format)  # [80, L]
        return [
            mels[:, start + span.start : start + span.stop]
            for start, span in zip(self._starts, wanted, strict=True)
            if span is not None
        ]

    def release(self) -> None:
        self._solver.free(self._place)
