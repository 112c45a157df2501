"""bench.budget: what is counted, and what is said of a row that is over."""

from pathlib import Path

import pytest

from voicegate.bench.budget import ROWS, Row, main, size, table


def test_lines_are_counted_once(tmp_path: Path) -> None:
    for name in ("core/a.py", "families/one/b.py", "families/notes.md"):
        (tmp_path / "engine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "engine" / name).write_text("one\n\n# two\n")
    assert size(Row("core", ("engine",), 0, without=("engine/families",)), tmp_path) == 3
    assert size(Row("families", ("engine/families",), 0), tmp_path) == 3
    assert size(Row("files", ("engine",), 0, counts_files=True), tmp_path) == 3


def test_who_is_over_is_told() -> None:
    *fine, last = table({row.name: row.at_most for row in ROWS} | {ROWS[-1].name: ROWS[-1].at_most + 1})
    assert last.endswith("   1 over")
    assert not any("over" in line for line in fine)


def test_every_folder_of_the_budget_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    counted = [line[36:].split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert len(counted) == len(ROWS)
    assert "0" not in counted
