"""FlowBackend on our estimator: blocks of 50 frames, each frame computed exactly once, for many streams at a time.

Exact: a stream's frames equal those of upstream's streaming mode over its whole sequence, however tokens arrive
and whatever else runs (tests/parity/test_flow_streaming.py).
"""

from collections.abc import Sequence

from voicegate.engine.flow import chunking
from voicegate.engine.flow.backend import (
    FlowPrompt,
    StreamsExhausted,
    check_batch,
    rendered_whole,
)
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.chunking import BatchSize, FirstBlocks
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.prompt import BlockPrompt, load_prompt
from voicegate.engine.flow.prompt_rendering import BlockPromptRendering
from voicegate.engine.flow.stream import BlockBatch, BlockSolver, BlockStream


class FlowRunner:
    """See FlowBackend for the promises. Knows streams and their blocks; the solver computes."""

    def __init__(
        self,
        model: FlowModel,
        pool: BlockPool,
        solver: BlockSolver,
        *,
        max_streams: int,
        first_blocks: FirstBlocks = FirstBlocks(),  # noqa: B008 - frozen
    ) -> None:
        """All streams and prompts share the pool: see block_pool.bytes_per_block for what a block costs."""
        self.model = model
        self.name = solver.name
        self.graphs = solver.graphs
        self.lookahead_tokens = model.config.lookahead_tokens
        self._first_blocks = first_blocks
        self._pool = pool
        self._solver = solver
        self._max_streams = max_streams
        self._num_open = 0

    @property
    def num_free_blocks(self) -> int:
        return self._pool.num_free

    @property
    def num_free_batches(self) -> int:
        return self._solver.num_free_batches

    def batch_size(self, max_rows: int) -> BatchSize:
        return self._solver.batch_size(max_rows)

    def num_prompt_blocks(self, num_tokens: int) -> int:
        return chunking.num_prompt_blocks(num_tokens, num_layouts=self._first_blocks.num_layouts)

    def num_speech_blocks(self, num_tokens: int) -> int:
        return chunking.num_speech_blocks(num_tokens)

    def begin_prompt(self, prompt: FlowPrompt) -> BlockPromptRendering:
        first, num_tokens = self._first_blocks, len(prompt.speech_ids)
        lead_in, short_lead_in = (
            chunking.prompt_lead_in(num_tokens, first_block=each) for each in (first.usual, first.short)
        )
        loaded = load_prompt(self.model, prompt, num_lead_in_tokens=lead_in)
        if short_lead_in != lead_in:
            loaded.short = load_prompt(self.model, prompt, num_lead_in_tokens=short_lead_in)
        return BlockPromptRendering(self.model, self._pool, self._solver, loaded)

    def prepare(self, prompt: FlowPrompt) -> BlockPrompt:
        return rendered_whole(self.begin_prompt(prompt))

    def release(self, prompt: BlockPrompt) -> None:
        if not prompt.is_released:
            prompt.is_released = True
            for layout in prompt.layouts:
                self._pool.release(layout.blocks)

    def open(self, prompt: BlockPrompt, *, begins_short: bool = False) -> BlockStream:
        if prompt.is_released:
            raise ValueError("the prompt was released")
        if self._num_open == self._max_streams:
            raise StreamsExhausted(f"all {self._max_streams} streams are open")
        self._num_open += 1
        laid_out = prompt.short if begins_short and prompt.short is not None else prompt
        self._pool.retain(laid_out.blocks)
        return BlockStream(self.model, laid_out)

    def close(self, stream: BlockStream) -> None:
        if not stream.is_closed:
            self._num_open -= 1
            stream.abandon(self._pool)

    def begin(self, streams: Sequence[BlockStream]) -> BlockBatch:
        check_batch(streams)
        return BlockBatch(self.model, self._pool, self._solver, streams)
