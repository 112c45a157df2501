"""Keeps measurements of the long runs: bench/results/soak.json, of all that passed when they were run last.

`make soak` loads this file as a plugin. Any other run takes the fixture alone (tests/conftest.py) and writes nothing.
"""

import json
import resource
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import pytest

from voicegate.clients.bench import environment

RESULTS: Final = Path(__file__).resolve().parents[2] / "bench" / "results" / "soak.json"

_FIGURES: Final = pytest.StashKey[dict[str, Any]]()

Keep = Callable[..., None]


@pytest.fixture
def keep(request: pytest.FixtureRequest) -> Keep:
    """Figures of a long run by name; those of a quick form are dropped."""

    def note(**figures: Any) -> None:
        request.node.stash.setdefault(_FIGURES, {}).update(figures)

    return note


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and item.get_closest_marker("soak") is not None:
        kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        kept.pop(item.name, None)
        if report.passed:
            kept[item.name] = {
                **item.stash.get(_FIGURES, {}),
                "took_s": round(report.duration, 1),
                "peak_rss_mib": _peak_rss_mib(),
                "environment": environment.describe(),
            }
        RESULTS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    return report


def _peak_rss_mib() -> float:
    """Peak memory of the tests' process. Linux counts in KiB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
