"""What can be wrong with a checkpoint; every message names the file and says what to do."""

from collections.abc import Sequence


class CheckpointError(ValueError):
    """The upstream directory cannot be converted, or the place to write to is not fit for it."""


class HoldsMoreThanData(CheckpointError):
    """A pickle names classes or functions, which loading it would call."""


class UnfitTensors(CheckpointError):
    """A weights file has not the tensors that its configuration asks for; `faults` lists each, one a line."""

    def __init__(self, summary: str, faults: Sequence[str]) -> None:
        super().__init__(summary)
        self.faults = tuple(faults)
