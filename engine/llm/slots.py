"""The numbers of an LLM's slots, as arrays: what each has stored, and how far its random stream has been read."""

import numpy as np
import numpy.typing as npt

from voicegate.engine.llm.backend import NoFreeSlot
from voicegate.engine.llm.sampler import seed_key, uniforms

SlotNumbers = npt.NDArray[np.int64]


class Slots:
    """[slots] each; what is launched counts as done."""

    def __init__(self, num_slots: int) -> None:
        self.free = list(reversed(range(num_slots)))
        self.lengths = np.zeros(num_slots, np.int64)  # positions fed
        self.num_drawn = np.zeros(num_slots, np.int64)  # the number of the next draw
        self._seed_keys = np.zeros(num_slots, np.uint64)

    def allocate(self, seed: int) -> int:
        """An empty one, at the beginning of the random stream. Raises NoFreeSlot."""
        if not self.free:
            raise NoFreeSlot(f"all {len(self.lengths)} LLM slots are taken")
        slot = self.free.pop()
        self.lengths[slot] = self.num_drawn[slot] = 0
        self._seed_keys[slot] = seed_key(seed)
        return slot

    def draw(self, slots: SlotNumbers) -> npt.NDArray[np.float64]:
        """[n, 2]: the uniforms of each slot's next draw, which counts as made."""
        drawn = uniforms(self._seed_keys[slots], self.num_drawn[slots].astype(np.uint64))
        self.num_drawn[slots] += 1
        return drawn
