"""Counts of the models' work since the start, by stage. From the engine's thread; read from any."""

from collections import defaultdict
from typing import Final

# Batches are counted by size: up to 1, 2, 4 ... 1024.
_NUM_SIZES: Final = 11


class Tally:
    def __init__(self) -> None:
        self.counters: defaultdict[str, float] = defaultdict(float)
        self.batch_sizes = {stage: [0] * _NUM_SIZES for stage in ("llm", "flow", "vocoder")}
        self.num_rendered = 0  # Euler steps and calls of the vocoder that were done

    def note_batch(self, stage: str, num_rows: int) -> None:
        self.batch_sizes[stage][min((num_rows - 1).bit_length(), _NUM_SIZES - 1)] += 1

    def ran(self, stage: str, runs: str, num_rows: int, *, num_launches: int) -> None:
        """`runs`: what the stage has of it, steps or calls; `num_launches`: so far."""
        self.note_batch(stage, num_rows)
        self.counters[f"{stage}_{runs}"] += 1
        self.counters[f"{stage}_rows"] += num_rows
        self.counters[f"{stage}_launches"] = num_launches

    def took(self, stage: str, seconds: float) -> None:
        """It was fetched."""
        self.num_rendered += 1
        self.counters[f"{stage}_seconds"] += seconds
