"""The records of a launch, made from the slots' numbers as arrays, without a loop over sequences.

The host knows all about a unistream sequence but its tokens: positions, history places, random numbers and flags
follow from how many draws were launched. So a step can be launched before the tokens of the last are known.
"""

import numpy as np

from voicegate.engine.llm.cuda import packing
from voicegate.engine.llm.cuda.packing import LINE_WORDS, SAMPLE_WORDS, Words
from voicegate.engine.llm.feed import Rows
from voicegate.engine.llm.slots import SlotNumbers, Slots

_LAST_NUMBER = 2**31 - 1  # a sequence's in its slot; 0 is the padding's


class Records:
    """Numbers that a decode needs of its slot beside `Slots`: [slots] each, set by `begin_decoding`."""

    def __init__(self, slots: Slots, *, window: int) -> None:
        num_slots = len(slots.lengths)
        self._min_tokens = np.zeros(num_slots, np.int64)
        self._numbers = np.zeros(num_slots, np.int32)  # of the slots' sequences
        self._places = np.arange(num_slots, dtype=np.int32)
        self._slots = slots
        self._window = window

    def begin(self, slot: int) -> None:
        """Another sequence has the slot."""
        self._numbers[slot] = self._numbers[slot] % _LAST_NUMBER + 1

    def begin_decoding(self, slot: int, *, min_tokens: int) -> None:
        """From the next sample on, the slot's sequence feeds the token that it drew."""
        self._min_tokens[slot] = min_tokens

    def decode_lines(self, slots: SlotNumbers) -> Words:
        """Line records [n, LINE_WORDS] that feed each slot's last token. Counts them as fed."""
        lines = np.empty((len(slots), LINE_WORDS), np.int32)
        lines[:, 0] = packing.USE_LAST_TOKEN
        lines[:, 1] = slots
        lines[:, 2] = self._slots.lengths[slots]
        lines[:, 3] = self._numbers[slots]
        self._slots.lengths[slots] += 1
        return lines

    def feed_lines(self, slot: int, table_rows: Rows) -> Words:
        """Line records [n, LINE_WORDS] that feed these table rows. Counts them as fed."""
        lines = np.empty((len(table_rows), LINE_WORDS), np.int32)
        lines[:, 0] = table_rows
        lines[:, 1] = slot
        lines[:, 2] = np.arange(self._slots.lengths[slot], self._slots.lengths[slot] + len(table_rows))
        lines[:, 3] = self._numbers[slot]
        self._slots.lengths[slot] += len(table_rows)
        return lines

    def decode_samples(self, slots: SlotNumbers) -> Words:
        """Sample records [n, SAMPLE_WORDS] of lines 0 to n - 1, which feed what each sequence drew last."""
        if len(slots) == 1:
            return self._drawn_sample(int(slots[0]), packing.GOES_ON)
        num_drawn = self._slots.num_drawn[slots]
        samples = np.empty((len(slots), SAMPLE_WORDS), np.int32)
        samples[:, 0] = self._places[: len(slots)]
        samples[:, 1] = slots
        samples[:, 2] = packing.GOES_ON | (num_drawn < self._min_tokens[slots]) * packing.IS_IGNORING_EOS
        samples[:, 3] = num_drawn % self._window
        samples[:, 4:] = self._slots.draw(slots).view(np.int32)
        return samples

    def first_sample(self, slot: int) -> Words:
        """One sample record [1, SAMPLE_WORDS] of a reading's first token; its line is the caller's to fill in."""
        return self._drawn_sample(slot, 0 if self._slots.num_drawn[slot] else packing.IS_FRESH)

    def bistream_sample(self, slot: int, *, num_decoded: int, ignore_eos: bool, is_forced_fill: bool) -> Words:
        """One sample record [1, SAMPLE_WORDS] of a bistream sequence that has decoded so many tokens."""
        flags = packing.COUNTS_AS_FILL
        flags |= packing.IS_IGNORING_EOS if ignore_eos else 0
        flags |= packing.IS_FORCED_FILL if is_forced_fill else 0
        flags |= packing.IS_FRESH if num_decoded == 0 else 0
        record = self._sample(slot, flags, num_decoded % self._window)
        if is_forced_fill:
            self._slots.num_drawn[slot] -= 1  # nothing was drawn
        return record

    def _drawn_sample(self, slot: int, flags: int) -> Words:
        num_drawn = int(self._slots.num_drawn[slot])
        if num_drawn < self._min_tokens[slot]:
            flags |= packing.IS_IGNORING_EOS
        return self._sample(slot, flags, num_drawn % self._window)

    def _sample(self, slot: int, flags: int, history_place: int) -> Words:
        """By Python's own numbers: arrays of one take several times as long, and the device waits for a prompt's."""
        sample = np.empty((1, SAMPLE_WORDS), np.int32)
        sample[0, :4] = (0, slot, flags, history_place)
        sample[0, 4:] = self._slots.draw_one(slot).view(np.int32)
        return sample
