"""A flow of full size with random weights and a pool of random context: what the flow's kernel benchmarks run."""

from collections.abc import Sequence
from typing import Final

import torch

from voicegate.bench.kernels.floors import FULL
from voicegate.bench.kernels.timing import DEVICE
from voicegate.engine import units
from voicegate.engine.flow.backend import FlowPrompt
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK, TOKENS_PER_BLOCK
from voicegate.engine.flow.cuda.config import FlowCudaConfig
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.prompt import load_prompt
from voicegate.engine.flow.stream import BlockRow, BlockStream
from voicegate.engine.flow.weights import flow_shapes
from voicegate.engine.model.config import FlowConfig

FULL_SIZE: Final = FULL.cosyvoice3_flow
CONTEXTS: Final = (150, 450)  # frames
# Of the largest batch, each stream with a context of its own.
NUM_BLOCKS: Final = FlowCudaConfig().max_batch * (CONTEXTS[-1] // FRAMES_PER_BLOCK + 1)


def random_state_dict(config: FlowConfig) -> dict[str, torch.Tensor]:
    generator = torch.Generator(DEVICE).manual_seed(0)
    return {
        key: torch.randn(shape, device=DEVICE, generator=generator)
        * (0.1 if len(shape) == 1 else torch.Size(shape[1:]).numel() ** -0.5)
        for key, shape in flow_shapes(config).items()
    }


class FlowFixture:
    """A model with a pool of random context, and batches of streams at any place in it."""

    def __init__(self) -> None:
        noise = torch.randn(units.NUM_MELS, 2_000, device=DEVICE)
        state = random_state_dict(FULL_SIZE)
        self.model = FlowModel(FULL_SIZE, state, device=DEVICE, dtype=torch.bfloat16, noise=noise)
        self.pool = BlockPool(
            FULL_SIZE.estimator,
            num_steps=FULL_SIZE.num_euler_steps,
            num_blocks=NUM_BLOCKS,
            device=DEVICE,
            dtype=torch.bfloat16,
        )
        self.pool.tails.normal_()
        for block in self.pool.keys_values:
            block.copy_(torch.randn(block.shape, device=DEVICE))
        empty = FlowPrompt(torch.empty(0, dtype=torch.int64), torch.empty(0, units.NUM_MELS), torch.randn(192))
        self._prompt = load_prompt(self.model, empty)

    def batch(
        self, frames_of_rows: Sequence[int], contexts: int | Sequence[int]
    ) -> tuple[list[BlockStream], list[BlockRow]]:
        """Streams with so many finished frames, all or each, in blocks of their own as far as the pool goes."""
        if isinstance(contexts, int):
            contexts = [contexts] * len(frames_of_rows)
        streams, rows = [], []
        first = 0
        for num_frames, context in zip(frames_of_rows, contexts, strict=True):
            num_finished = context // FRAMES_PER_BLOCK
            stream = BlockStream(self.model, self._prompt)
            stream.append(range(num_finished * TOKENS_PER_BLOCK + num_frames // units.FRAMES_PER_TOKEN))
            stream.finish()
            blocks = [(first + j) % self.pool.scratch for j in range(num_finished + 1)]
            stream.blocks = blocks[:-1]
            first += len(blocks)
            streams.append(stream)
            rows.append(BlockRow(tuple(blocks[:-1]), blocks[-1], num_frames))
        return streams, rows
