"""One GPU of a fleet, as it was measured: first audio by how many streams it has. Pure.

Between measured loads everything is interpolated; below the median the median is taken, which no figure here asks for.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

# Live streams -> scenario of bench.engine.
_SCENARIOS: Final = {1: "first-audio", 128: "live-128", 300: "sustain-300", 400: "sustain-400"}
_SHARES: Final = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (1.0, "max"))


@dataclass(frozen=True, slots=True)
class Gpu:
    loads: Sequence[int]
    shares: Sequence[float]
    first_audio_ms: Sequence[Sequence[float]]  # by load, by share
    max_streams: int  # measured without a loss; beyond it a turn is refused, not guessed at

    def quantiles_ms(self, num_streams: int) -> list[float]:
        return [float(np.interp(num_streams, self.loads, column)) for column in np.transpose(self.first_audio_ms)]

    def table_ms(self) -> list[list[float]]:
        """By number of streams, up to the most."""
        return [self.quantiles_ms(number) for number in range(self.max_streams + 1)]


def measured(results: Path) -> Gpu:
    """As measured in bench/results/engine-h200-3d38cbd.json."""
    scenarios = json.loads(results.read_text())["scenarios"]
    rows = [[scenarios[name]["first_audio_ms"][key] for _, key in _SHARES] for name in _SCENARIOS.values()]
    return Gpu(tuple(_SCENARIOS), tuple(share for share, _ in _SHARES), rows, max(_SCENARIOS))
