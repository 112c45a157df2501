"""How much one batch of blocks may hold. Pure: the scheduler goes by it, without torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchSize:
    num_rows: int  # blocks, each of another stream
    num_frames: int  # of all rows together; a last block has fewer than 50
