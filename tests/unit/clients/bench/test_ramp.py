"""The search for the largest load, and what a load owes."""

from typing import Any

import pytest

from voicegate.clients.bench.ramp import Objective, largest
from voicegate.clients.bench.run import Ramp
from voicegate.clients.bench.scenario import UnknownScenario


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 7, 8, 100, 128, 129, 400, 1000])
@pytest.mark.parametrize("at_most", [1, 10, 128, 500])
async def test_the_largest_that_holds_is_found_with_few_rounds(limit: int, at_most: int) -> None:
    asked: list[int] = []

    async def holds(num: int) -> bool:
        asked.append(num)
        return num <= limit

    found = await largest(holds, at_most=at_most)
    wanted = min(limit, at_most)
    assert wanted * 0.9 - 1 <= found <= wanted
    assert found == 0 or found in asked
    assert len(asked) == len(set(asked)) <= 14
    assert max(asked) <= at_most


def row(
    *, p95_ms: float = 100.0, c100: float | None = 1.0, refused: int = 0, rtf_p99: float | None = 0.5
) -> dict[str, Any]:
    outcomes = {"done": 10, "cancelled": 0, "refused": refused, "failed": 0, "cut_off": 0}
    return {"first_audio_ms": {"p95": p95_ms}, "c100": c100, "rtf": {"p99": rtf_p99}, "outcomes": outcomes}


def test_an_objective_names_the_first_thing_that_is_missed() -> None:
    objective = Objective(first_audio_p95_ms=200.0, c100=0.99)
    assert objective.misses(row()) is None
    assert objective.misses(row(c100=None)) is None
    assert "p95 201 ms, over 200" in str(objective.misses(row(p95_ms=201.0)))
    assert "C100 98.0%, under 99.0%" in str(objective.misses(row(c100=0.98)))
    assert "RTF p99 1.000, not under 1" in str(objective.misses(row(rtf_p99=1.0)))
    assert objective.misses(row(rtf_p99=0.999)) is None
    assert objective.misses(row(rtf_p99=None)) is None, "too few turns to tell"
    assert objective.misses({**row(), "rtf": None}) is None, "nobody heard the end"
    assert "audible p95 250 ms, over 200" in str(objective.misses({**row(), "audible_ms": {"p95": 250.0}}))
    assert "1 were refused" in str(objective.misses(row(refused=1)))
    assert objective.misses({**row(), "first_audio_ms": None}) == "nothing was heard"


def test_a_ramp_makes_scenarios_of_its_form() -> None:
    assert str(Ramp("live:20j", 8, Objective()).scenario(4)) == "live:4:20j"
    assert str(Ramp("mixed", 8, Objective()).scenario(4)) == "mixed:4"
    with pytest.raises(UnknownScenario):
        Ramp("alone", 8, Objective())
