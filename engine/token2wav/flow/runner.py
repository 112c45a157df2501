"""FlowBackend on our estimator: blocks of 50 frames, each frame computed exactly once, for many streams at a time.

Exact: a stream's frames equal those of upstream's streaming mode over its whole sequence, however tokens arrive
and whatever else runs (tests/parity/test_flow_streaming.py).
"""

from collections.abc import Sequence

from voicegate.engine.device.capture import Capturable
from voicegate.engine.device.lanes import Expected
from voicegate.engine.policy.batch_size import BatchSize
from voicegate.engine.token2wav.flow import chunking
from voicegate.engine.token2wav.flow.backend import (
    FirstBlock,
    FlowPrompt,
    StreamsExhausted,
    check_batch,
    rendered_whole,
)
from voicegate.engine.token2wav.flow.block_pool import BlockPool
from voicegate.engine.token2wav.flow.chunking import FirstBlocks
from voicegate.engine.token2wav.flow.early import EarlyBlocks
from voicegate.engine.token2wav.flow.model import FlowModel
from voicegate.engine.token2wav.flow.prompt import BlockPrompt, load_prompt
from voicegate.engine.token2wav.flow.prompt_rendering import BlockPromptRendering
from voicegate.engine.token2wav.flow.stream import BlockBatch, BlockSolver, BlockStream


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
        self._first_blocks = first_blocks
        self._pool = pool
        self._solver = solver
        self._max_streams = max_streams
        self._num_open = 0
        self._early = EarlyBlocks(pool, solver)

    @property
    def name(self) -> str:
        return self._solver.name

    @property
    def graphs(self) -> Capturable:
        return self._solver.graphs

    @property
    def lookahead_tokens(self) -> int:
        return self.model.config.lookahead_tokens

    @property
    def num_free_blocks(self) -> int:
        return self._early.num_free_blocks

    @property
    def num_free_batches(self) -> int:
        return self._early.num_free_batches

    def batch_size(self, max_rows: int) -> BatchSize:
        return self._solver.batch_size(max_rows)

    def num_prompt_blocks(self, num_tokens: int) -> int:
        return chunking.num_prompt_blocks(num_tokens, num_layouts=self._first_blocks.num_layouts)

    def num_speech_blocks(self, num_tokens: int) -> int:
        return chunking.num_speech_blocks(num_tokens)

    def begin_prompt(self, prompt: FlowPrompt) -> BlockPromptRendering:
        first, num_tokens = self._first_blocks, len(prompt.speech_ids)
        wanted = {
            FirstBlock.USUAL: first.usual,
            FirstBlock.SHORT: first.short,
            FirstBlock.SHORTEST: first.shortest,
            FirstBlock.LONG: first.long,
        }
        lead_ins = {kind: chunking.prompt_lead_in(num_tokens, first_block=each) for kind, each in wanted.items()}
        loaded = {each: load_prompt(self.model, prompt, num_lead_in_tokens=each) for each in set(lead_ins.values())}
        layouts = {kind: loaded[lead_in] for kind, lead_in in lead_ins.items()}
        return BlockPromptRendering(self.model, self._pool, self._solver, self._early, layouts)

    def prepare(self, prompt: FlowPrompt) -> BlockPrompt:
        return rendered_whole(self.begin_prompt(prompt))

    def release(self, prompt: BlockPrompt) -> None:
        if not prompt.is_released:
            prompt.is_released = True
            for layout in prompt.layouts:
                self._pool.release(layout.blocks)

    def open(self, prompt: BlockPrompt, first_block: FirstBlock = FirstBlock.USUAL) -> BlockStream:
        if prompt.is_released:
            raise ValueError("the prompt was released")
        if self._num_open == self._max_streams:
            raise StreamsExhausted(f"all {self._max_streams} streams are open")
        self._num_open += 1
        laid_out = prompt.others.get(first_block, prompt)
        self._pool.retain(laid_out.blocks)
        return BlockStream(self.model, laid_out)

    def close(self, stream: BlockStream) -> None:
        self._early.forget(stream)
        if not stream.is_closed:
            self._num_open -= 1
            stream.abandon(self._pool)

    def foresee(self, stream: BlockStream, first_draws: Expected | None = None) -> bool:
        if stream.is_closed or stream.is_finished or stream.batch or self._early.is_of(stream):
            return False
        self._solver.foresee(stream)
        return first_draws is not None and self._early.begin(stream, first_draws)

    def is_begun_early(self, stream: BlockStream) -> bool:
        return self._early.is_of(stream)

    def begin(self, streams: Sequence[BlockStream]) -> BlockBatch:
        check_batch(streams)
        return BlockBatch(self.model, self._pool, self._solver, streams, early=self._early.take(streams))
