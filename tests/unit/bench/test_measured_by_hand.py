"""The table of docs/measured.md that is typed by hand, of runs beside each other: each figure is one of its files'."""

import re
from pathlib import Path
from typing import Any

import pytest

from voicegate.bench.environment import REPOSITORY
from voicegate.bench.table import results

LINES = (REPOSITORY / "docs" / "measured.md").read_text().splitlines()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in LINES if line.startswith("| `socket-")]
LOADS = ("alone:", "live:128:", "live:400:", "mixed:")  # of the columns behind the first


def runs_of(cell: str) -> list[dict[str, Any]]:
    """Runs of `a.json`, and of `-b` after it: a-b.json, or a number in place of the one that `a` ends with."""
    first, *others = re.findall(r"`((?:socket)?-?[\w-]+?)(?:\.json)?`", re.sub(r"`--[^`]*`", "", cell))
    stem = re.sub(r"-1$", "", first)
    names = [first, *(f"{stem if other[1:].isdigit() else first}{other}" for other in others)]
    runs = [results(f"{name}.json") for name in names]
    assert None not in runs, names
    return [run for run in runs if run is not None]


def measured(runs: list[dict[str, Any]], load: str) -> list[dict[str, Any]]:
    return [row for run in runs for name, row in run["scenarios"].items() if row is not None and name.startswith(load)]


def test_there_is_such_a_table() -> None:
    assert len(ROWS) >= 5


@pytest.mark.parametrize("cells", ROWS, ids=lambda cells: cells[0].split("`")[1])
def test_what_is_typed_is_what_was_measured(cells: list[str]) -> None:
    runs = runs_of(cells[0])
    told = [run["environment"]["commit"] for run in runs]
    for commit in re.findall(r"\b(?=[0-9a-f]*\d)[0-9a-f]{7}\b", cells[0]):
        assert commit in told
    for load, cell in zip(LOADS, cells[1:], strict=False):
        rows = measured(runs, load)
        times = {f"{row['first_audio_ms']['p50']:.0f} / {row['first_audio_ms']['p95']:.0f}" for row in rows}
        assert set(re.findall(r"\d+ / \d+", cell)) <= times
        assert set(re.findall(r"\((\d+) turns", cell)) <= {str(row["first_audio_ms"]["num"]) for row in rows}
        medians = " and ".join(re.findall(r"; ([\d. and]+) at the median", cell))
        assert set(re.findall(r"[\d.]+", medians)) <= {f"{row['first_audio_ms']['p50']:.1f}" for row in rows}
        assert set(re.findall(r"([\d.]+) %", cell)) <= {f"{100 * row['c100']:.1f}" for row in rows}
        if load == "mixed:" and (refused := re.search(r", (\d+)$", cell)):
            assert refused[1] in {str(row["outcomes"]["refused"]) for row in measured(runs, "mixed:500")}


def test_files_that_are_named_are_there() -> None:
    pages = [REPOSITORY / "README.md", *Path(REPOSITORY, "docs").rglob("*.md")]
    kept = re.compile(r"`((?:socket|burst|engine|kernels)-[\w-]+\.json)`")
    named = {name for page in pages for name in kept.findall(page.read_text())}
    assert len(named) > 7
    assert [name for name in sorted(named) if results(name) is None] == []
