"""A voice's prompt on its way: the whole blocks of its layouts, one after the other, each in a batch of its own."""

from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.chunking import TOKENS_PER_BLOCK
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.prompt import BlockPrompt
from voicegate.engine.flow.stream import BlockBatch, BlockSolver, BlockStream


class BlockPromptRendering:
    """Implements PromptRendering. Made by FlowRunner.begin_prompt."""

    def __init__(self, model: FlowModel, pool: BlockPool, solver: BlockSolver, prompt: BlockPrompt) -> None:
        """Raises BlocksExhausted."""
        self._model = model
        self._pool = pool
        self._solver = solver
        self._prompt = prompt
        self._streams = [BlockStream(model, layout) for layout in self._prompt.layouts]
        self._batch: BlockBatch | None = None
        num_lookahead = model.config.lookahead_tokens
        num_blocks = sum(max(len(each.tokens) - num_lookahead, 0) // TOKENS_PER_BLOCK for each in self._prompt.layouts)
        # For the blocks that are not begun. A batch takes its own from the pool: one of these is put there just before.
        self._kept = pool.allocate(num_blocks)

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
        assert not any(stream.is_ready for stream in self._streams), "the prompt has blocks to render"
        for stream in self._streams:
            stream.prompt.blocks = tuple(stream.blocks)
            stream.blocks.clear()  # the prompt's own now
        return self._prompt

    def close(self) -> None:
        for stream in self._streams:
            stream.abandon(self._pool)
        self._batch = None
        self._pool.release(self._kept)
        self._kept.clear()

    def _begin(self) -> BlockBatch:
        stream = next(stream for stream in self._streams if stream.is_ready)
        block = self._kept.pop()
        self._pool.release([block])
        try:
            return BlockBatch(self._model, self._pool, self._solver, [stream])
        except BaseException:
            self._kept += self._pool.allocate(1)
            raise
