"""When work that nobody listens to gets a step: while speech leaves the device alone, and now and then while it does
not.

Pure: it counts steps, not seconds.
"""

from typing import Final

# Euler steps of speech between two of such work, where speech never rests. Lower -> more is taken from listeners;
# higher -> a voice takes longer to be there on a full engine.
STEPS_OF_SPEECH: Final = 8


class SpareTurns:
    def __init__(self) -> None:
        self._num_steps_of_speech = 0  # since the last turn

    def is_due(self, num_steps: int = STEPS_OF_SPEECH) -> bool:
        """Whether speech has had so many steps since the last turn."""
        return self._num_steps_of_speech >= num_steps

    def note_speech(self, num_steps: int) -> None:
        """So many Euler steps of speech had the device."""
        self._num_steps_of_speech += num_steps

    def take(self) -> None:
        self._num_steps_of_speech = 0
