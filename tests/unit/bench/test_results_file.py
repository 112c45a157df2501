"""The file that a benchmark leaves."""

import json
from pathlib import Path

import pytest

from voicegate.bench import results_file


def test_what_was_measured_beside_one_kind_is_kept_if_the_next_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results" / "beside.json"
    with pytest.raises(KeyError, match="loud"):
        results_file.gather(lambda kind: {"quiet": {"gap_ms": 0.0}}[kind], ("quiet", "loud"), path)
    report = json.loads(path.read_text())
    assert report["beside"] == {"quiet": {"gap_ms": 0.0}}
    assert "commit" in report["environment"]
    assert capsys.readouterr().out == 'quiet {"gap_ms": 0.0}\n'
