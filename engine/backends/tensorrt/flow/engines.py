"""The engines of the flow's Euler step on a device, and which batch is whose: theirs, or our kernels'."""

from collections.abc import Iterable, Mapping, Sequence

import torch

from voicegate.engine.backends.tensorrt.choice import TENSORRT
from voicegate.engine.backends.tensorrt.flow.estimator import OF_STEP, TensorrtEstimator
from voicegate.engine.backends.tensorrt.flow.shape import FlowShape
from voicegate.engine.backends.tensorrt.library import LoadedEngine, TensorrtError
from voicegate.engine.backends.tensorrt.shared_tensors import SharedTensors
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.flow.cuda.buffers import BatchView
from voicegate.engine.flow.cuda.estimator import FixedShapeEstimator
from voicegate.engine.flow.cuda.tensors import FlowTensors
from voicegate.engine.flow.stream import BlockRow


class FlowEngines:
    """Implements StepEngines."""

    name = TENSORRT

    def __init__(
        self,
        engines: Mapping[FlowShape, LoadedEngine],
        device: torch.device,
        *,
        shapes: Iterable[FlowShape] | None = None,
    ) -> None:
        """Takes the memory of all that a step needs. `shapes`: also those that our kernels have; None: there are none.

        Raises TensorrtError for engines that are not of one kind.
        """
        # Behind the shortest context first.
        self._shapes = sorted(engines if shapes is None else shapes, key=lambda shape: shape.context_frames)
        self._engines = engines
        self._shared = SharedTensors(engines.values(), OF_STEP, device)

    @property
    def shapes(self) -> list[FlowShape]:
        """Shapes of the engines."""
        return [shape for shape in self._shapes if shape in self._engines]

    def shape_for(self, rows: Sequence[BlockRow], num_lines: int) -> FlowShape | None:
        """Shape of the engine that is to compute a batch in the bucket of so many lines; None: our kernels do."""
        context_frames = FRAMES_PER_BLOCK * max(len(row.finished) for row in rows)
        for shape in self._shapes:
            if shape.num_lines == num_lines and shape.num_rows >= len(rows) and shape.context_frames >= context_frames:
                return shape if shape in self._engines else None
        return None

    def estimator(
        self, shape: FlowShape, kernels: FixedShapeEstimator, tensors: FlowTensors, batch: BatchView
    ) -> TensorrtEstimator:
        """Estimator of one of `shapes`, for one batch's buffers. Raises TensorrtError."""
        engine = self._engines[shape]
        low = engine.tensors["context.0"].dtype
        if low != tensors.dtype:
            raise TensorrtError(f"{shape.name} is of {low}, the flow of {tensors.dtype}")
        return TensorrtEstimator(kernels, tensors, batch, shape, engine, self._shared)
