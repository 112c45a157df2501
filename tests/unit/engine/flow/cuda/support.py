"""A batch in fixed buffers with random history, as large as one needs it."""

from dataclasses import dataclass, replace
from itertools import accumulate

import torch

from tests.support.flow import CPU, flow_config, flow_state, make_prompt, make_tokens, short_noise
from tests.support.flow_reference import REFERENCE_OPS
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.cuda.buffers import BatchBuffers, BatchView
from voicegate.engine.flow.cuda.config import FlowCudaConfig
from voicegate.engine.flow.cuda.estimator import FixedShapeEstimator
from voicegate.engine.flow.cuda.tensors import FlowTensors, flow_tensors
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.prompt import load_prompt
from voicegate.engine.flow.stream import BlockRow, BlockStream
from voicegate.engine.flow.weights import flow_shapes
from voicegate.engine.model.config import EstimatorConfig, FlowConfig

EAGER = FlowCudaConfig(frame_buckets=(16, 50, 100, 200, 400), has_graphs=False)


@dataclass(frozen=True, slots=True)
class Row:
    """A stream that has `num_finished` blocks behind it and `num_frames` in the next."""

    num_finished: int
    num_frames: int
    prompt_tokens: int = 0


def random_state(config: FlowConfig) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: 0.1 * torch.randn(shape, generator=generator) for name, shape in flow_shapes(config).items()}


class Bench:
    """The buffers of one batch, its blocks one behind the other, and a pool.

    Keys, values and tails of finished blocks are random, others NaN.
    """

    def __init__(
        self,
        rows: list[Row],
        *,
        num_rows: int,
        num_lines: int,
        step: int = 1,
        dtype: torch.dtype = torch.float32,
        kv_dtype: torch.dtype | None = None,
        head_dim: int | None = None,
        num_blocks: int = 12,
        device: torch.device = CPU,
    ) -> None:
        """Takes the golden model; with a `head_dim` one with such heads, and random weights."""
        config, state = replace(flow_config(), num_euler_steps=2), flow_state()
        if head_dim is not None:
            dim = config.estimator.num_heads * head_dim
            config = replace(config, estimator=replace(config.estimator, dim=dim, head_dim=head_dim))
            state = random_state(config)
        self.model = FlowModel(config, state, device=device, dtype=dtype, noise=short_noise().to(device))
        self.pool = BlockPool(
            config.estimator,
            num_steps=2,
            num_blocks=num_blocks,
            device=device,
            dtype=dtype,
            kv_dtype=kv_dtype,
            poison=True,
        )
        self.tensors: FlowTensors = flow_tensors(self.model, self.pool)
        buffers = BatchBuffers(self.model, self.pool, max_rows=num_rows, max_lines=num_lines)
        self.batch: BatchView = buffers.view(num_rows, num_lines)
        streams = [self._stream(i, row) for i, row in enumerate(rows)]
        self.rows = [
            BlockRow(tuple(stream.blocks), self.pool.allocate(1)[0], stream.next_num_frames) for stream in streams
        ]
        ends = list(accumulate(row.num_frames for row in self.rows))
        self.starts = [0, *ends[:-1]]
        buffers.fill(self.batch, streams, self.rows, self.starts)
        FixedShapeEstimator(self.model, self.tensors, REFERENCE_OPS).begin(self.batch)
        self.batch.step.fill_(step)

    @property
    def config(self) -> EstimatorConfig:
        return self.tensors.config

    def _stream(self, seed: int, row: Row) -> BlockStream:
        generator = torch.Generator().manual_seed(seed)
        prepared = load_prompt(self.model, make_prompt(row.prompt_tokens, seed=seed))
        stream = BlockStream(self.model, prepared)
        num_tokens = 25 * row.num_finished + row.num_frames // 2 - row.prompt_tokens
        stream.append(make_tokens(num_tokens, seed=seed))
        stream.finish()
        stream.blocks = self.pool.allocate(row.num_finished)
        for block in stream.blocks:
            for memory in (self.pool.keys_values, self.pool.tails):
                memory[block] = torch.randn(memory[block].shape, generator=generator).to(memory.dtype)
        return stream
