"""Which blocks of a flow's memory are whose: reference-counted, handed out one by one. No tensors."""

from collections import Counter
from collections.abc import Iterable

from voicegate.engine.flow.backend import BlocksExhausted


class BlockLedger:
    """Blocks are 0 .. num_blocks - 1; the one freed last is handed out first, so that little memory is touched."""

    def __init__(self, num_blocks: int) -> None:
        self._references: Counter[int] = Counter()
        self._free = list(reversed(range(num_blocks)))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """`count` blocks with one reference each, or none at all: raises BlocksExhausted."""
        if count > len(self._free):
            raise BlocksExhausted(wanted=count, free=len(self._free))
        blocks = [self._free.pop() for _ in range(count)]
        self._references.update(blocks)
        return blocks

    def retain(self, blocks: Iterable[int]) -> None:
        self._references.update(blocks)

    def release(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            assert self._references[block] > 0, f"block {block} is free already"
            self._references[block] -= 1
            if self._references[block] == 0:
                del self._references[block]
                self._free.append(block)
                self._freed(block)

    def _freed(self, block: int) -> None:
        """For who keeps something in it."""
