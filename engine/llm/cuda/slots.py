"""The slots' numbers on the host, as arrays: every launch's records are made from them without a loop over sequences.

The host knows all about a unistream sequence but its tokens: positions, history places, random numbers and flags
follow from how many draws were launched. So a step can be launched before the tokens of the last are known.
"""

import numpy as np
import numpy.typing as npt

from voicegate.engine.llm.backend import NoFreeSlot
from voicegate.engine.llm.cuda import packing
from voicegate.engine.llm.cuda.packing import ROW_WORDS, SAMPLE_WORDS, Words
from voicegate.engine.llm.sampler import seed_key, uniforms

Slots = npt.NDArray[np.int64]


class SlotTable:
    """[slots] each; what is launched counts as done."""

    def __init__(self, num_slots: int, *, window: int) -> None:
        self.lengths = np.zeros(num_slots, np.int64)  # positions fed
        self.num_drawn = np.zeros(num_slots, np.int64)  # the number of the next draw
        self.min_tokens = np.zeros(num_slots, np.int64)
        self.forbids_end = np.zeros(num_slots, np.bool_)
        self.is_decoding = np.zeros(num_slots, np.bool_)  # unistream or a growing one's reading, its prefill launched
        self._seed_keys = np.zeros(num_slots, np.uint64)
        self._window = window
        self._free = list(reversed(range(num_slots)))

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def free_slots(self) -> list[int]:
        return list(self._free)

    def allocate(self, seed: int) -> int:
        """Raises NoFreeSlot."""
        if not self._free:
            raise NoFreeSlot(f"all {len(self.lengths)} LLM slots are taken")
        slot = self._free.pop()
        for array in (self.lengths, self.num_drawn, self.min_tokens):
            array[slot] = 0
        self.is_decoding[slot] = False
        self.forbids_end[slot] = False
        self._seed_keys[slot] = seed_key(seed)
        return slot

    def free(self, slot: int) -> None:
        self._free.append(slot)

    def decode_rows(self, slots: Slots) -> Words:
        """Row records [n, ROW_WORDS] that feed each slot's last token. Counts them as fed."""
        rows = np.empty((len(slots), ROW_WORDS), np.int32)
        rows[:, 0] = packing.USE_LAST_TOKEN
        rows[:, 1] = slots
        rows[:, 2] = self.lengths[slots]
        rows[:, 3] = 0
        self.lengths[slots] += 1
        return rows

    def feed_rows(self, slot: int, table_rows: list[int]) -> Words:
        """Row records [n, ROW_WORDS] that feed these rows of the joint table. Counts them as fed."""
        rows = np.empty((len(table_rows), ROW_WORDS), np.int32)
        rows[:, 0] = table_rows
        rows[:, 1] = slot
        rows[:, 2] = np.arange(self.lengths[slot], self.lengths[slot] + len(table_rows))
        rows[:, 3] = 0
        self.lengths[slot] += len(table_rows)
        return rows

    def decode_samples(self, slots: Slots) -> Words:
        """Sample records [n, SAMPLE_WORDS] of unistream sequences; their rows are the caller's to fill in."""
        num_drawn = self.num_drawn[slots]
        flags = np.where(num_drawn < self.min_tokens[slots], packing.IS_IGNORING_EOS, 0)
        flags |= np.where(num_drawn == 0, packing.IS_FRESH, 0)
        flags |= np.where(self.forbids_end[slots], packing.FORBIDS_END, 0)
        return self._samples(slots, flags, num_drawn % self._window)

    def bistream_sample(self, slot: int, *, num_decoded: int, ignore_eos: bool, is_forced_fill: bool) -> Words:
        """One sample record [1, SAMPLE_WORDS] of a bistream sequence that has decoded so many tokens."""
        flags = packing.COUNTS_AS_FILL
        flags |= packing.IS_IGNORING_EOS if ignore_eos else 0
        flags |= packing.IS_FORCED_FILL if is_forced_fill else 0
        flags |= packing.IS_FRESH if num_decoded == 0 else 0
        record = self._samples(np.array([slot]), np.array([flags]), np.array([num_decoded % self._window]))
        if is_forced_fill:
            self.num_drawn[slot] -= 1  # nothing was drawn
        return record

    def _samples(self, slots: Slots, flags: Slots, history_places: Slots) -> Words:
        samples = np.zeros((len(slots), SAMPLE_WORDS), np.int32)
        samples[:, 1] = slots
        samples[:, 2] = flags
        samples[:, 3] = history_places
        drawn = uniforms(self._seed_keys[slots], self.num_drawn[slots].astype(np.uint64))
        samples[:, 4:] = drawn.view(np.int32)
        self.num_drawn[slots] += 1
        return samples
