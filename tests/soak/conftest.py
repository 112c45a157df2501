"""What the long runs measure is kept: bench/results/soak.json, of all that were run last."""

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from voicegate.clients.bench import environment

RESULTS: Final = Path(__file__).resolve().parents[2] / "bench" / "results" / "soak.json"

Keep = Callable[..., None]


@pytest.fixture
def keep(request: pytest.FixtureRequest) -> Keep:
    """Figures of a long run by name; those of a quick form are looked at and dropped."""

    def write(**figures: Any) -> None:
        if request.node.get_closest_marker("soak") is None:
            return
        kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        kept[request.node.name] = {**figures, "peak_rss_mib": _peak_rss_mib(), "environment": environment.describe()}
        RESULTS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")

    return write


def _peak_rss_mib() -> float:
    """Linux counts in KiB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
