"""Solves chunks in tensors as large as the batch: runs anywhere."""

import sys
from collections.abc import Sequence

import torch

from voicegate.engine.device.capture import NOTHING_TO_CAPTURE
from voicegate.engine.families.stepaudio2.flow.chunk_buffers import ChunkBuffers, ChunkRow, ChunkShape, Tails
from voicegate.engine.families.stepaudio2.flow.memory import FlowMemory
from voicegate.engine.families.stepaudio2.flow.model import StepAudio2Flow
from voicegate.engine.families.stepaudio2.flow.passes import ChunkPasses


class TorchSolver:
    """Implements Solver."""

    name = "torch"
    graphs = NOTHING_TO_CAPTURE

    def __init__(self, model: StepAudio2Flow, memory: FlowMemory, *, max_batches: int) -> None:
        self.num_free_batches = max_batches
        self.max_rows = sys.maxsize
        self._model = model
        self._memory = memory
        self._passes = ChunkPasses(model, memory)

    def begin(self, rows: Sequence[ChunkRow]) -> "TorchSolve":
        buffers = ChunkBuffers(self._model, self._memory, ChunkShape.of(rows))
        buffers.fill(rows)
        self._passes.begin(buffers)
        return TorchSolve(self._passes, buffers, rows)


class TorchSolve:
    """Implements Solve."""

    def __init__(self, passes: ChunkPasses, buffers: ChunkBuffers, rows: Sequence[ChunkRow]) -> None:
        self._passes = passes
        self._buffers = buffers
        self._rows = rows

    def advance(self) -> None:
        self._passes.advance(self._buffers)

    def mel(self, row: int) -> torch.Tensor:
        return self._buffers.mel(row, self._rows[row].num_frames)

    def tails(self, row: int) -> Tails:
        return self._buffers.tails(row)

    def release(self) -> None:
        """Nothing of it is shared."""
