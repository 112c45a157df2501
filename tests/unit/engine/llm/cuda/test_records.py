"""The record of a single slot's sample is the one that it has among others, though it is made by other means."""

import numpy as np

from voicegate.engine.llm.cuda.records import Records
from voicegate.engine.llm.slots import Slots

WINDOW = 10


def test_a_single_slots_records_are_those_that_it_has_among_others() -> None:
    """Beyond the draws that are hashed together, the history ring's end and the tokens before which nothing ends."""
    made = []
    for is_alone in (True, False):
        slots = Slots(2)
        records = Records(slots, window=WINDOW)
        for seed in (7, 8):
            slot = slots.allocate(seed)
            records.begin(slot)
            records.begin_decoding(slot, min_tokens=5)
        asked = np.array([0] if is_alone else [0, 1])
        made.append([records.decode_samples(asked)[0] for _ in range(70)])
    for alone, among_others in zip(*made, strict=True):
        np.testing.assert_array_equal(alone, among_others)
