"""Which of several engine processes, or token2wavs of one, takes a new request. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """Load of one of them: its chooser's own knowledge, and (of a process) its last report."""

    room: int  # so many more it would take
    num_placed: int  # utterances that are not at rest, those among them that a process has not heard of yet
    max_live: int  # that it speaks well at once: clauses on a GPU
    num_waiting: int = 0  # clauses that wait for room in its models
    num_blocks_free: float = 0.0  # of the flow, and not expected to be filled
    max_blocks: float = 0.0  # 0: not known

    @property
    def taken(self) -> float:
        """Share of its places, of its memory, and of its places once more that others wait for.

        What it was told of is added to `num_placed`, which counts at once: else new requests who come in one moment
        would all go to one process.
        """
        places = max(self.max_live, 1)
        memory = 1.0 - self.num_blocks_free / self.max_blocks if self.max_blocks else 0.0
        return (self.num_placed + self.num_waiting) / places + memory


def choose(loads: Iterable[tuple[int, Load]]) -> int | None:
    """By number; None: nobody has room. Among equals it is the one with the fewest, then the first."""
    open_ones = [(load.taken, load.num_placed, number) for number, load in loads if load.room > 0]
    return min(open_ones)[2] if open_ones else None
