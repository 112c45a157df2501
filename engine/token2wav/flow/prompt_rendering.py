"""A voice's prompt on its way: its whole blocks, one after the other, each in a batch of its own."""

from voicegate.engine.token2wav.flow.block_pool import BlockPool
from voicegate.engine.token2wav.flow.chunking import TOKENS_PER_BLOCK
from voicegate.engine.token2wav.flow.model import FlowModel
from voicegate.engine.token2wav.flow.prompt import BlockPrompt
from voicegate.engine.token2wav.flow.stream import BlockBatch, BlockSolver, BlockStream


class BlockPromptRendering:
    """Implements PromptRendering. Made by FlowRunner.begin_prompt."""

    def __init__(self, model: FlowModel, pool: BlockPool, solver: BlockSolver, prompt: BlockPrompt) -> None:
        """Raises BlocksExhausted."""
        self._model = model
        self._pool = pool
        self._solver = solver
        self._prompt = prompt
        self._stream = BlockStream(model, prompt)
        self._batch: BlockBatch | None = None
        num_tokens_with_lookahead = max(len(prompt.tokens) - model.config.lookahead_tokens, 0)
        # Of the blocks that are not begun. A batch takes its own from the pool: one of these is put there just before.
        self._kept = pool.allocate(num_tokens_with_lookahead // TOKENS_PER_BLOCK)

    @property
    def takes_step(self) -> bool:
        return self._batch is not None or not self._kept or self._solver.num_free_batches > 0

    @property
    def holds_batch(self) -> bool:
        return self._batch is not None

    def advance(self) -> bool:
        if self._batch is None and self._kept:
            self._batch = self._begin()
        if self._batch is not None and self._batch.advance():
            self._batch.result()
            self._batch = None
        return self._batch is None and not self._kept

    def result(self) -> BlockPrompt:
        assert not self._stream.is_ready, "the prompt has blocks to render"
        self._prompt.blocks = tuple(self._stream.blocks)
        self._stream.blocks.clear()  # the prompt's own now
        return self._prompt

    def close(self) -> None:
        self._stream.abandon(self._pool)
        self._batch = None
        self._pool.release(self._kept)
        self._kept.clear()

    def _begin(self) -> BlockBatch:
        block = self._kept.pop()
        self._pool.release([block])
        try:
            return BlockBatch(self._model, self._pool, self._solver, [self._stream])
        except BaseException:
            self._kept += self._pool.allocate(1)
            raise
