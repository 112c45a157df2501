"""One batch of chunks in fixed buffers, as large as one needs it, amid random memory."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from tests.support.stepaudio2 import CPU, flow_config, flow_state
from voicegate.engine import units
from voicegate.engine.families.stepaudio2.flow.chunk_buffers import ChunkBuffers, ChunkRow, ChunkShape, Tails
from voicegate.engine.families.stepaudio2.flow.cuda.step import PRODUCTS, FusedStep
from voicegate.engine.families.stepaudio2.flow.cuda.tensors import StepTensors, step_tensors
from voicegate.engine.families.stepaudio2.flow.memory import FlowMemory
from voicegate.engine.families.stepaudio2.flow.model import StepAudio2Flow
from voicegate.engine.families.stepaudio2.flow.passes import TorchStep


@dataclass(frozen=True, slots=True)
class Row:
    num_past: int  # frames that its new ones see before themselves
    num_tokens: int


def plain_widen(_: StepTensors, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """cuBLASLt's GELU is the tanh form, a CPU's `_addmm_activation` has the exact one."""
    return F.gelu(F.linear(x, weight, bias), approximate="tanh")


class Bench:
    """Rows and a padding row, at Euler step 1 of 2.

    A row's frames lie all over the memory; places of nobody are NaN, and so is what its buffers hold behind its end if
    `has_garbage`: the plain form cannot bear it there.
    """

    def __init__(
        self,
        rows: list[Row],
        *,
        num_tokens: int,
        num_known: int,
        has_garbage: bool,
        dtype: torch.dtype = torch.float32,
        kv_dtype: torch.dtype | None = None,
    ) -> None:
        config = replace(flow_config(), num_euler_steps=2)
        self.model = StepAudio2Flow(config, flow_state(), device=CPU, dtype=dtype)
        self.memory = FlowMemory(config, num_blocks=24, device=CPU, dtype=dtype, kv_dtype=kv_dtype, poison=True)
        self.rows = list(self._chunk_rows(rows))
        self.shape = ChunkShape(len(rows) + 1, num_tokens, num_known)
        self.buffers = ChunkBuffers(self.model, self.memory, self.shape)
        self.buffers.fill(self.rows)
        self.buffers.step.fill_(1)
        generator = torch.Generator().manual_seed(2)
        for tensor in (self.buffers.base, self.buffers.x):
            tensor.normal_(generator=generator)
            for index, row in enumerate(self.rows):
                tensor.view(-1, *tensor.shape[-3:])[:, index, row.num_frames :] = torch.nan if has_garbage else 0.5
            tensor.view(-1, *tensor.shape[-3:])[:, len(rows) :] = torch.nan if has_garbage else 0.5

    def _chunk_rows(self, rows: list[Row]) -> Iterator[ChunkRow]:
        generator = torch.Generator().manual_seed(1)
        places = iter(np.random.default_rng(3).permutation(self.memory.scratch).tolist())
        for row in rows:
            past = np.asarray([next(places) for _ in range(row.num_past)], dtype=np.int64)
            new = np.asarray([next(places) for _ in range(row.num_tokens * units.FRAMES_PER_TOKEN)], dtype=np.int64)
            kept = self.memory.estimator
            drawn = torch.randn(kept[:, :, past].shape, generator=generator)
            for index, place in enumerate(past):
                kept[:, :, place] = drawn[:, :, index].to(kept.dtype)
            tails = Tails.before_first(self.model.config, device=CPU, dtype=self.model.dtype)
            tails.estimator.normal_(generator=generator)
            context = np.concatenate((past, new))
            yield ChunkRow(
                window=[0] * row.num_tokens,
                num_tokens=row.num_tokens,
                noise_start=0,
                known=context,
                context=context,
                tails=tails,
                speaker_bias=torch.zeros(self.model.config.estimator.dim),
            )

    @property
    def shape_of_lines(self) -> tuple[int, int]:
        return self.shape.num_rows, self.shape.num_frames

    @property
    def tensors(self) -> StepTensors:
        return step_tensors(self.model, self.memory)

    def plain_step(self) -> TorchStep:
        return TorchStep(self.model, self.memory)

    def fused_step(self) -> FusedStep:
        return FusedStep(self.model, self.memory, products=replace(PRODUCTS, widen=plain_widen))

    def own(self, lines: torch.Tensor) -> torch.Tensor:
        """The frames that there are of [..., B, n, D] or of lines [C * B * n, D]."""
        by_row = lines.reshape(-1, self.shape.num_rows, self.shape.num_frames, lines.shape[-1])
        return torch.cat([by_row[:, index, : row.num_frames].flatten(0, 1) for index, row in enumerate(self.rows)])

    def written(self) -> torch.Tensor:
        """[depth, new frames, 2, C, H, d] of this step, float32."""
        places = np.concatenate([row.new for row in self.rows])
        return self.memory.estimator.float()[:, 1, places]

    def left_alone(self) -> torch.Tensor:
        """The memory but for that; and for the scratch block, where the plain form writes its padding."""
        kept = self.memory.estimator.float()
        kept[:, 1, np.concatenate([row.new for row in self.rows])] = 0
        return kept[:, :, : self.memory.scratch]
