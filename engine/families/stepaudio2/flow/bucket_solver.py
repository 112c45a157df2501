"""Solves chunks in fixed buffers: a batch's beginning and each Euler step is a CUDA graph's replay, or done eagerly.

Nothing is copied back and nothing waits: all work goes to the current CUDA stream, which must always be the same one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product

import torch

from voicegate.engine.device.cuda_graphs import BucketedWork, bucket_for, check_buckets
from voicegate.engine.families.stepaudio2.flow.chunk_buffers import ChunkBuffers, ChunkRow, ChunkShape, Tails
from voicegate.engine.families.stepaudio2.flow.memory import FlowMemory
from voicegate.engine.families.stepaudio2.flow.model import StepAudio2Flow
from voicegate.engine.families.stepaudio2.flow.passes import ChunkPasses, EulerStep
from voicegate.engine.families.stepaudio2.flow.torch_solver import TorchSolve, TorchSolver
from voicegate.engine.flow.backend import BatchesExhausted


@dataclass(frozen=True, slots=True)
class BucketConfig:
    """Batches are padded to the next of each; a graph is captured for every combination.

    More of them -> less is computed in vain, and a longer start. Raises ValueError naming those that do not fit.
    """

    token_buckets: tuple[int, ...]  # of the longest chunk: `ChunkSchedule.longest_chunks`
    row_buckets: tuple[int, ...] = (1, 2, 4, 8, 16, 24, 32)
    # Frames of prompt and speech. What is longer than the last is solved without graphs: 41 s.
    known_buckets: tuple[int, ...] = (512, 1_024, 2_048)
    max_batches: int = 2  # that may run interleaved; each has its own buffers and graphs
    has_graphs: bool = True  # False: the same work launched call by call

    def __post_init__(self) -> None:
        for name in ("token_buckets", "row_buckets", "known_buckets"):
            check_buckets(name, getattr(self, name))

    @property
    def shapes(self) -> list[ChunkShape]:
        """The largest first."""
        sizes = (self.row_buckets, self.token_buckets, self.known_buckets)
        return [ChunkShape(*each) for each in product(*(reversed(size) for size in sizes))]

    def shape_for(self, rows: Sequence[ChunkRow]) -> ChunkShape | None:
        """The smallest that holds these; None if none does."""
        shape = ChunkShape.of(rows)
        if shape.num_tokens > self.token_buckets[-1] or shape.num_known > self.known_buckets[-1]:
            return None
        return ChunkShape(
            bucket_for(self.row_buckets, shape.num_rows),
            bucket_for(self.token_buckets, shape.num_tokens),
            bucket_for(self.known_buckets, shape.num_known),
        )


class Pass(Enum):
    BEGIN = "begin"
    STEP = "Euler step"


_Place = tuple[int, ChunkShape]  # which buffers, bucket
_Key = tuple[_Place, Pass]


class BucketSolver:
    """Implements Solver."""

    name = "cuda"

    def __init__(
        self, model: StepAudio2Flow, memory: FlowMemory, config: BucketConfig, *, step: EulerStep | None = None
    ) -> None:
        """`step`: of what is in buckets; None: torch's operations. Raises ValueError for graphs on a device without."""
        if config.has_graphs and model.device.type != "cuda":
            raise ValueError(f"CUDA graphs were asked for on {model.device}: set has_graphs=False")
        self._config = config
        self._passes = ChunkPasses(model, memory, step)
        # A voice's prompt is as long as it is, and solved once.
        self._plain = TorchSolver(model, memory, max_batches=config.max_batches)
        storages = [_Storage(model.device) for _ in range(config.max_batches)]
        self._buffers = {
            (number, shape): ChunkBuffers(model, memory, shape, storage.allocate)
            for shape in config.shapes
            for number, storage in enumerate(storages)
        }
        self._free = list(reversed(range(config.max_batches)))
        keys = [(place, kind) for place in self._buffers for kind in Pass]
        self.graphs = BucketedWork(
            self._work,
            keys,
            pad=self._pad,
            compiled_keys=[key for key in keys if key[0][0] == 0],  # the other buffers' kernels are the same
            is_eager=not config.has_graphs,
        )

    @property
    def max_rows(self) -> int:
        return self._config.row_buckets[-1]

    @property
    def num_free_batches(self) -> int:
        return len(self._free)

    def begin(self, rows: Sequence[ChunkRow]) -> "BucketSolve | TorchSolve":
        shape = self._config.shape_for(rows)
        if shape is None or any(row.prompt_mel is not None for row in rows):
            return self._plain.begin(rows)
        if not self._free:
            raise BatchesExhausted(f"all {self._config.max_batches} batches run: finish one first")
        place = (self._free.pop(), shape)
        try:
            self._buffers[place].fill(rows)
            self.graphs.run((place, Pass.BEGIN))
        except BaseException:
            self._free.append(place[0])
            raise
        return BucketSolve(self, place, self._buffers[place], rows)

    def advance(self, place: _Place) -> None:
        self.graphs.run((place, Pass.STEP))

    def free(self, place: _Place) -> None:
        self._free.append(place[0])

    def _pad(self, key: _Key) -> None:
        self._buffers[key[0]].fill(())

    def _work(self, key: _Key) -> None:
        place, kind = key
        match kind:
            case Pass.BEGIN:
                self._passes.begin(self._buffers[place])
            case Pass.STEP:
                self._passes.advance(self._buffers[place])


class BucketSolve:
    """Implements Solve."""

    def __init__(self, solver: BucketSolver, place: _Place, buffers: ChunkBuffers, rows: Sequence[ChunkRow]) -> None:
        self._solver = solver
        self._place = place
        self._buffers = buffers
        self._rows = rows

    def advance(self) -> None:
        self._solver.advance(self._place)

    def mel(self, row: int) -> torch.Tensor:
        return self._buffers.mel(row, self._rows[row].num_frames)

    def tails(self, row: int) -> Tails:
        return self._buffers.tails(row)

    def release(self) -> None:
        self._solver.free(self._place)


class _Storage:
    """The largest bucket's memory, which all buckets of a batch share: only one of them is in use."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._tensors: dict[str, torch.Tensor] = {}

    def allocate(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """The first to ask for a name must be the largest."""
        size = math.prod(shape)
        if name not in self._tensors:
            self._tensors[name] = torch.zeros(size, device=self._device, dtype=dtype)
        return self._tensors[name][:size].view(shape)
