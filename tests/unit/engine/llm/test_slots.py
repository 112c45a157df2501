"""Slots: given out once, empty, and each with a random stream of its own."""

import numpy as np
import pytest

from voicegate.engine.llm.backend import NoFreeSlot
from voicegate.engine.llm.sampler import seed_key, uniforms
from voicegate.engine.llm.slots import Slots

pytestmark = pytest.mark.unit


def test_every_slot_is_given_out_once() -> None:
    slots = Slots(3)
    assert sorted(slots.allocate(seed) for seed in range(3)) == [0, 1, 2]
    assert not slots.free
    with pytest.raises(NoFreeSlot, match="all 3"):
        slots.allocate(3)


def test_a_slot_comes_back_empty_and_draws_from_the_beginning() -> None:
    slots = Slots(1)
    slot = slots.allocate(5)
    slots.lengths[slot] = 20
    slots.draw(np.array([slot]))
    slots.free.append(slot)
    assert slots.allocate(6) == slot
    assert slots.lengths[slot] == 0
    first = uniforms(np.array([seed_key(6)]), np.zeros(1, np.uint64))
    assert np.array_equal(slots.draw(np.array([slot])), first)


def test_each_draw_goes_on_where_the_slots_last_ended() -> None:
    slots, alone = Slots(2), Slots(1)
    both = np.array([slots.allocate(seed) for seed in (1, 2)])
    second = np.array([alone.allocate(2)])
    for _ in range(2):
        assert np.array_equal(slots.draw(both)[1], alone.draw(second)[0])
