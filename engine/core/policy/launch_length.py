"""How many Euler steps of a batch a GPU is given at once. Pure.

Each launch costs the engine's thread a decision, two marks and a wake-up, as much as a small batch's step takes the
device; and while hundreds speak that thread is what is short (docs/adr/0009).
"""

from typing import Final

# Of a batch that listeners wait for who hear something. Higher -> a newcomer, or who is about to run dry, waits longer
# for what is under way; lower -> the device waits for the thread.
_OF_HEARD: Final = 3
# Frames times steps of any launch: 10 ms of a GPU at most.
_FRAME_STEPS: Final = 4000


def euler_steps_at_once(num_frames: int, *, is_first: bool) -> int:
    """Of a batch of so many frames. First blocks are solved in one go: nobody but who runs dry goes before them."""
    most = max(_FRAME_STEPS // max(num_frames, 1), 1)
    return most if is_first else min(most, _OF_HEARD)
