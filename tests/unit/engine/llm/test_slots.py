"""Slots: given out once, empty, and each with a random stream of its own."""

import numpy as np
import pytest

from voicegate.engine.llm.backend import NoFreeSlot
from voicegate.engine.llm.slots import Slots, seed_key, uniforms


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
    slots.draw(both[:1])
    for number in range(100):  # beyond those that are drawn together, at another place in each slot
        drawn = slots.draw(both)
        assert np.array_equal(drawn[1], alone.draw(second)[0])
        keys, calls = np.array([seed_key(1), seed_key(2)]), np.array([number + 1, number], np.uint64)
        assert np.array_equal(drawn, uniforms(keys, calls))


@pytest.mark.parametrize("num_before", [0, 1, 31, 32, 63])
def test_a_draw_that_was_not_made_is_made_again(num_before: int) -> None:
    """A forced fill of bistream, of whichever draw."""
    slots = Slots(1)
    slot = np.array([slots.allocate(7)])
    for _ in range(num_before):
        slots.draw(slot)
    first = slots.draw(slot)
    slots.num_drawn[slot] -= 1
    assert np.array_equal(slots.draw(slot), first)
    following = slots.draw(slot)
    assert np.array_equal(following, uniforms(np.array([seed_key(7)]), np.array([num_before + 1], np.uint64)))
