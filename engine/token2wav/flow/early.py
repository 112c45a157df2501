"""A block that was begun before the host knew its tokens: of one stream at a time, and in nobody's way.

What it holds, a block of the pool and a batch's buffers, is its stream's next one, or is given to whoever needs it: so
it counts as free. The device computes a dropped one to its end all the same, before whatever is launched then.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from voicegate.engine.device.lanes import Expected
from voicegate.engine.token2wav.flow.block_context import BlockRow
from voicegate.engine.token2wav.flow.block_pool import BlockPool
from voicegate.engine.token2wav.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.token2wav.flow.stream import BlockSolver, BlockStream, EarlySolve


@dataclass(frozen=True, slots=True)
class _Held:
    stream: BlockStream
    row: BlockRow
    solve: EarlySolve


class EarlyBlocks:
    def __init__(self, pool: BlockPool, solver: BlockSolver) -> None:
        self._pool = pool
        self._solver = solver
        self._held: _Held | None = None

    @property
    def num_free_blocks(self) -> int:
        return self._pool.num_free + (self._held is not None)

    @property
    def num_free_batches(self) -> int:
        return self._solver.num_free_batches + (self._held is not None)

    def is_of(self, stream: BlockStream) -> bool:
        return self._held is not None and self._held.stream is stream

    def begin(self, stream: BlockStream, first_draws: Expected) -> bool:
        """Whether that could be; there is none of another stream then. `stream`: one whose next block was foreseen."""
        if self._held is not None and self._held.solve.contradicts(self._held.stream):
            self._drop()
        if self._held is not None or stream.num_own_blocks or not self._pool.num_free:
            return False
        row = BlockRow(tuple(stream.blocks), self._pool.allocate(1)[0], FRAMES_PER_BLOCK)
        solve = None
        try:
            solve = self._solver.begin_early(stream, row, first_draws)
        finally:
            if solve is None:
                self._pool.release([row.block])
        if solve is not None:
            self._held = _Held(stream, row, solve)
        return solve is not None

    def take(self, streams: Sequence[BlockStream]) -> tuple[BlockRow, EarlySolve] | None:
        """What was begun early, if it is what these begin with now; else there is room for them."""
        held = self._held
        if held is not None and held.stream in streams:
            is_whole = held.stream.next_num_frames == FRAMES_PER_BLOCK
            if len(streams) == 1 and is_whole and held.solve.has_taken(held.stream):
                self._held = None
                return held.row, held.solve
            self._drop()
        self.make_room(len(streams))
        return None

    def make_room(self, num_blocks: int) -> None:
        """For a batch that takes so many."""
        if self._held is not None and (not self._solver.num_free_batches or self._pool.num_free < num_blocks):
            self._drop()

    def forget(self, stream: BlockStream) -> None:
        if self.is_of(stream):
            self._drop()

    def _drop(self) -> None:
        held, self._held = self._held, None
        assert held is not None
        held.solve.release()
        self._pool.release([held.row.block])
