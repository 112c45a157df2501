"""Tokens that were drawn and that nobody needs yet, by slot, as arrays: a step of many rows is taken without a loop.

Most tokens are of listeners with plenty left, or within a block: what is new is the last of the block.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from voicegate.engine.llm.slots import SlotNumbers

# Of a slot. No block, with what it looks ahead at, has more.
_CAPACITY: Final = 64


class HeldTokens:
    """[slots] each, of sequences that feed themselves what they drew (unistream, and a growing one's readings)."""

    def __init__(self, num_slots: int) -> None:
        self.num_taken = np.zeros(num_slots, np.int64)  # drawn and fetched, but for the one that ended the speech
        self.max_tokens = np.zeros(num_slots, np.int64)  # the most that there may be
        self._tokens = np.zeros((num_slots, _CAPACITY), np.int32)
        self._num_held = np.zeros(num_slots, np.int64)
        self._tell_after = np.ones(num_slots, np.int64)

    def begin(self, slot: int) -> None:
        """Another sequence has the slot."""
        self.num_taken[slot] = self._num_held[slot] = 0
        self._tell_after[slot] = 1

    def tell_after(self, slot: int, num_tokens: int) -> None:
        self._tell_after[slot] = min(max(num_tokens, 1), _CAPACITY)

    def take(self, slots: SlotNumbers, tokens: npt.NDArray[np.int32], *, speech_ids: int) -> npt.NDArray[np.bool_]:
        """One token [n] for each of the slots [n], each named once; which of them [n] are to be told of now.

        Those whose token is no speech id (below `speech_ids`), who have all that they may, and who hold as many as
        are wanted.
        """
        places = self._num_held[slots]
        self._tokens[slots, places] = tokens
        self._num_held[slots] = places + 1
        num_taken = self.num_taken[slots] + 1
        self.num_taken[slots] = num_taken
        is_enough = places + 1 >= self._tell_after[slots]
        return is_enough | (tokens >= speech_ids) | (num_taken >= self.max_tokens[slots])

    def give(self, slot: int) -> list[int]:
        """What it holds, in order. From now on every token is told, until fewer are wanted."""
        tokens: list[int] = self._tokens[slot, : self._num_held[slot]].tolist()
        self._num_held[slot] = 0
        self._tell_after[slot] = 1
        return tokens
