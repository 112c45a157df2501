"""The numbers of an LLM's slots, as arrays: what each has stored, and how far its random stream has been read."""

from typing import Final

import numpy as np
import numpy.typing as npt

from voicegate.engine.llm.backend import NoFreeSlot
from voicegate.engine.llm.sampler import UNIFORMS_PER_CALL, first_uniforms, seed_key, uniforms

SlotNumbers = npt.NDArray[np.int64]

# Draws of a slot that are hashed together: for one it takes as long. Higher -> more for nothing, where speech ends.
_DRAWN_AHEAD: Final = 32


class Slots:
    """[slots] each; what is launched counts as done."""

    def __init__(self, num_slots: int) -> None:
        self.free = list(reversed(range(num_slots)))
        self.lengths = np.zeros(num_slots, np.int64)  # positions fed
        self.num_drawn = np.zeros(num_slots, np.int64)  # the number of the next draw
        self._seed_keys = np.zeros(num_slots, np.uint64)
        self._drawn = np.zeros((num_slots, _DRAWN_AHEAD, UNIFORMS_PER_CALL))  # those among which the next one is
        self._ends = np.zeros(num_slots, np.int64)  # of those that are there
        self._ahead = np.arange(_DRAWN_AHEAD)

    def allocate(self, seed: int) -> int:
        """An empty one, at the beginning of the random stream. Raises NoFreeSlot."""
        if not self.free:
            raise NoFreeSlot(f"all {len(self.lengths)} LLM slots are taken")
        slot = self.free.pop()
        self.lengths[slot] = self.num_drawn[slot] = 0
        self._seed_keys[slot] = key = seed_key(seed)
        # A prompt's launch, which the device waits for, takes this one; the others are drawn beside it.
        self._drawn[slot, 0] = first_uniforms(key)
        self._ends[slot] = 1
        return slot

    def draw(self, slots: SlotNumbers) -> npt.NDArray[np.float64]:
        """[n, 2]: the uniforms of each slot's next draw, which counts as made."""
        numbers = self.num_drawn[slots]
        is_missing = numbers >= self._ends[slots]
        if is_missing.any():
            self._draw_ahead(slots[is_missing])
        self.num_drawn[slots] = numbers + 1
        drawn: npt.NDArray[np.float64] = self._drawn[slots, numbers % _DRAWN_AHEAD]
        return drawn

    def draw_one(self, slot: int) -> npt.NDArray[np.float64]:
        """[2]: the same of one slot, in an eighth of the time."""
        number = int(self.num_drawn[slot])
        if number >= self._ends[slot]:
            self._draw_ahead(np.array([slot]))
        self.num_drawn[slot] = number + 1
        drawn: npt.NDArray[np.float64] = self._drawn[slot, number % _DRAWN_AHEAD]
        return drawn

    def _draw_ahead(self, slots: SlotNumbers) -> None:
        firsts = self.num_drawn[slots] // _DRAWN_AHEAD * _DRAWN_AHEAD
        keys = np.repeat(self._seed_keys[slots], _DRAWN_AHEAD)
        drawn = uniforms(keys, (firsts[:, None] + self._ahead).ravel().astype(np.uint64))
        self._drawn[slots] = drawn.reshape(len(slots), _DRAWN_AHEAD, UNIFORMS_PER_CALL)
        self._ends[slots] = firsts + _DRAWN_AHEAD
