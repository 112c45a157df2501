"""Solves a batch's blocks in fixed buffers: every Euler step is one CUDA graph replay, or the same calls eagerly.

Nothing is copied back and nothing waits: all work goes to the current CUDA stream, which must always be the same one.
"""

import time
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from itertools import accumulate

import torch

from voicegate.engine.device.cuda_graphs import GraphSet
from voicegate.engine.policy.batch_size import BatchSize
from voicegate.engine.token2wav.flow.block_context import BlockRow
from voicegate.engine.token2wav.flow.block_pool import BlockPool
from voicegate.engine.token2wav.flow.cuda.config import FlowCudaConfig
from voicegate.engine.token2wav.flow.cuda.estimator import FixedShapeEstimator
from voicegate.engine.token2wav.flow.cuda.lane import BlockBuffers, Lane
from voicegate.engine.token2wav.flow.cuda.ops import choose_float8_ops, choose_ops
from voicegate.engine.token2wav.flow.cuda.tensors import flow_tensors, in_float8
from voicegate.engine.token2wav.flow.errors import LanesExhausted
from voicegate.engine.token2wav.flow.model import FlowModel
from voicegate.engine.token2wav.flow.stream import FlowStream


class Pass(Enum):
    BEGIN = "begin"
    STEP = "Euler step"


_Key = tuple[int, BatchSize]  # lane, bucket


class CudaSolver:
    """Implements BlockSolver. Without graphs it runs on a CPU too, which is how its arithmetic is tested."""

    def __init__(self, model: FlowModel, pool: BlockPool, config: FlowCudaConfig) -> None:
        """Raises ValueError for graphs on a device without, ImportError for kernels without Triton."""
        if config.use_graphs and model.device.type != "cuda":
            raise ValueError(f"CUDA graphs were asked for on {model.device}: set use_graphs=False")
        self._config = config
        self._model = model
        is_pdl = config.overlap_launches and _can_overlap(model.device)
        tensors = flow_tensors(model, pool, is_pdl=is_pdl)
        self._estimator = FixedShapeEstimator(model, tensors, choose_ops(config))
        # Of batches of float8_frames and more.
        self._large_estimator = (
            FixedShapeEstimator(model, in_float8(tensors), choose_float8_ops(config))
            if config.product_dtype is not None
            else self._estimator
        )
        largest = config.sizes[-1]
        self._lanes = [
            Lane(
                model,
                pool,
                max_rows=largest.num_rows,
                max_lines=largest.num_frames,
                is_longest_first=config.longest_first,
            )
            for _ in range(config.num_lanes)
        ]
        self._buffers = {
            (i, size): lane.buffers(size.num_rows, size.num_frames)
            for i, lane in enumerate(self._lanes)
            for size in config.sizes
        }
        self._free = list(reversed(range(config.num_lanes)))
        self._graphs = GraphSet() if config.use_graphs else None

    def batch_size(self, max_rows: int) -> BatchSize:
        return self._config.batch_size(max_rows)

    @property
    def num_free_lanes(self) -> int:
        return len(self._free)

    @property
    def num_graphs(self) -> int:
        return len(self._graphs) if self._graphs is not None else 0

    @property
    def num_launches(self) -> int:
        """CUDA graphs launched so far; 0 where there are none."""
        return self._graphs.num_launches if self._graphs is not None else 0

    def begin(self, streams: Sequence[FlowStream], rows: Sequence[BlockRow]) -> "CudaSolve":
        size = self._config.size_for([row.num_frames for row in rows])
        if not self._free:
            raise LanesExhausted(f"all {len(self._lanes)} lanes run a batch: finish one, or build the flow with more")
        lane = self._free.pop()
        key = (lane, size)
        ends = list(accumulate(self._config.lines_of(row.num_frames) for row in rows))
        starts = [0, *ends[:-1]]
        try:
            self._lanes[lane].fill(self._buffers[key], streams, rows, starts)
            self.run(Pass.BEGIN, key)
        except BaseException:
            self._free.append(lane)
            raise
        return CudaSolve(self, key, self._buffers[key], starts)

    def free(self, key: _Key) -> None:
        self._free.append(key[0])

    @torch.inference_mode()
    def run(self, kind: Pass, key: _Key) -> None:
        if self._graphs is not None:
            self._graphs.replay((kind, key))
        else:
            self._run_eagerly(kind, self._buffers[key])

    @property
    def num_buckets(self) -> int:
        return len(self._config.sizes)

    @torch.inference_mode()
    def compile(self, advance: Callable[[], None] = lambda: None) -> None:
        """Run every bucket once, with padding alone, so that its kernels are compiled; `advance` after each."""
        for key in self._largest_first():
            if key[0] == 0:  # the other lanes run the same kernels
                self._lanes[0].fill(self._buffers[key], (), (), ())
                for kind in Pass:
                    self._run_eagerly(kind, self._buffers[key])
                advance()

    @torch.inference_mode()
    def capture(self, report: Callable[[str], None]) -> None:
        """Compile every kernel and capture every graph; afterwards nothing is compiled, captured or allocated.

        Must run before the first batch. Without graphs it still compiles and warms up.
        """
        started_s = time.monotonic()
        self.compile()  # after another thread's too: cuBLAS's handles and workspaces are a thread's own
        if self._graphs is not None:
            torch.cuda.synchronize(self._model.device)
            for key in self._largest_first():
                for kind in Pass:
                    self._graphs.capture((kind, key), partial(self._run_eagerly, kind, self._buffers[key]))
        report(f"flow: {self.num_graphs} CUDA graphs in {time.monotonic() - started_s:.1f} s")

    def _largest_first(self) -> list[_Key]:
        """The memory that the graphs share is then allocated once."""
        return sorted(self._buffers, key=lambda key: key[1].num_frames, reverse=True)

    def _run_eagerly(self, kind: Pass, buffers: BlockBuffers) -> None:
        is_large = buffers.num_lines >= self._config.float8_frames
        estimator = self._large_estimator if is_large else self._estimator
        match kind:
            case Pass.BEGIN:
                estimator.begin(buffers)
            case Pass.STEP:
                estimator.advance(buffers)


class CudaSolve:
    """Implements BlockSolve."""

    def __init__(self, solver: CudaSolver, key: _Key, buffers: BlockBuffers, starts: Sequence[int]) -> None:
        self._solver = solver
        self._key = key
        self._starts = starts  # each row's first line
        self.buffers = buffers

    def advance(self) -> None:
        self._solver.run(Pass.STEP, self._key)

    def frames(self, wanted: Sequence[slice | None]) -> list[torch.Tensor]:
        """Columns of one copy, taken in stream order: the lane may be another batch's right after."""
        mels = self.buffers.x.mT.clone(memory_format=torch.contiguous_format)  # [80, L]
        return [
            mels[:, start + span.start : start + span.stop]
            for start, span in zip(self._starts, wanted, strict=True)
            if span is not None
        ]

    def release(self) -> None:
        self._solver.free(self._key)


def _can_overlap(device: torch.device) -> bool:
    """Programmatic dependent launch, and the prefetch that goes with it, came with compute capability 9."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
