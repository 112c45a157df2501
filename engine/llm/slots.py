"""The numbers of an LLM's slots, as arrays: what each has stored, and how far its random stream has been read.

Random numbers are hashed from (seed, number of the sampling call): no draw depends on its batch. No torch.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from voicegate.engine.llm.backend import NoFreeSlot

SlotNumbers = npt.NDArray[np.int64]

UNIFORMS_PER_CALL = 2  # one for the nucleus, one for the redraw of a repeated token

# SplitMix64 (Steele, Lea, Flood 2014): the increment and the two multipliers of its finaliser.
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_MASK_64 = (1 << 64) - 1
_CALL_STRIDE = np.uint64(UNIFORMS_PER_CALL * _GOLDEN_GAMMA & _MASK_64)
_OFFSETS_OF_CALL = [_GOLDEN_GAMMA * (draw + 1) & _MASK_64 for draw in range(UNIFORMS_PER_CALL)]
_DRAW_OFFSETS = np.array(_OFFSETS_OF_CALL, dtype=np.uint64)

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

    def draw_anew(self, slot: int, num_drawn: int) -> None:
        """So many draws of the slot count. Those after them come from another stream: the same would end it again."""
        self.num_drawn[slot] = num_drawn
        self._seed_keys[slot] = seed_key(int(self._seed_keys[slot]))
        self._ends[slot] = 0

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


def seed_key(seed: int) -> np.uint64:
    """The key for `uniforms` of a seed, which may be any int; taken modulo 2**64."""
    # Mixed before the counter is added: otherwise neighbouring seeds would walk one common sequence.
    return np.uint64(_mix_one(seed & _MASK_64))


def uniforms(keys: npt.NDArray[np.uint64], calls: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """[B, UNIFORMS_PER_CALL] float64 in the open interval (0, 1), a pure function of each row's (key, call).

    `keys` [B] from `seed_key`; `calls` [B] the numbers, from 0, of the rows' sampling calls.
    """
    mixed = _mix((keys + calls * _CALL_STRIDE)[:, None] + _DRAW_OFFSETS)
    # 52 bits and a half: neither 0 nor, by rounding, 1 can come out.
    return ((mixed >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def first_uniforms(key: np.uint64) -> list[float]:
    """`uniforms` of a key's call 0, [UNIFORMS_PER_CALL], in a tenth of the time."""
    mixed = [_mix_one((int(key) + offset) & _MASK_64) for offset in _OFFSETS_OF_CALL]
    return [((bits >> 12) + 0.5) * 2.0**-52 for bits in mixed]


def _mix(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    state = (state ^ (state >> np.uint64(30))) * np.uint64(_MIX_1)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(_MIX_2)
    return state ^ (state >> np.uint64(31))


def _mix_one(state: int) -> int:
    state = (state ^ state >> 30) * _MIX_1 & _MASK_64
    state = (state ^ state >> 27) * _MIX_2 & _MASK_64
    return state ^ state >> 31
