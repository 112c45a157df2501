"""Rows of the ablation: which are measured, what a row that fails leaves behind, and one on a real small engine."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.upstream_source import SMALL
from voicegate.bench.engine import ablation
from voicegate.bench.engine.__main__ import UsageError, with_settings
from voicegate.bench.engine.ablation import ROWS, chosen_rows, line, main
from voicegate.bench.engine.run import Run
from voicegate.bench.full_size.engine_dir import Ending, make_engine_dir
from voicegate.engine.checkpoint.conversion import ConvertOptions
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import EngineError

RUN = ("--device", "cpu", "--threads", "1", "--scenario", "first-audio", "burst-2")


def figures(first_ms: float, rate: float) -> dict[str, Any]:
    return {"first_audio_ms": {"p50": first_ms, "p95": 2 * first_ms}, "audio_s_per_s": rate}


@pytest.fixture(autouse=True)
def logs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "configure_logs", lambda *_: None)  # logging is the whole process's


def test_rows_keep_their_order_and_their_settings_are_some_of_the_engines() -> None:
    assert [row.name for row in chosen_rows(["kv-bfloat16", "all"])] == ["all", "kv-bfloat16"]
    with pytest.raises(UsageError, match="there is no dance; there are all, eager"):
        chosen_rows(["dance"])
    plain = EngineConfig(Path("model"))
    for row in ROWS:
        assert (with_settings(plain, row.settings) == plain) == (row.name == "all")


def test_the_file_has_every_row_that_is_done_and_a_row_that_fails_stops_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "made" / "ablation.json"
    num_saved = []

    async def measure(run: Run, result: dict[str, Any], *_: object) -> None:
        num_saved.append(len(json.loads(target.read_text())["rows"]) if target.exists() else 0)
        if run.config.kv_dtype == "bfloat16":
            raise EngineError("no room")
        if run.config.is_eager:
            raise RuntimeError("CUDA error")
        result["start_s"] = 1.0
        result["scenarios"]["burst-2"] = figures(20.0 if run.config.flow_products == "precision" else 30.0, 8.0)

    monkeypatch.setattr(ablation, "measure_engine", measure)
    assert main([*RUN, "--json", str(target), "--rows", "all", "eager", "flow-float8", "kv-bfloat16"]) == 0
    rows = json.loads(target.read_text())["rows"]
    assert list(rows) == ["all", "eager", "flow-float8", "kv-bfloat16"]
    assert num_saved == [0, 1, 2, 3]
    assert rows["eager"]["error"] == "CUDA error"
    assert rows["kv-bfloat16"] == {"settings": ["kv_dtype=bfloat16"], "scenarios": {}, "error": "no room"}
    printed = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in printed] == ["row", "all", "eager", "flow-float8", "kv-bfloat16"]
    assert "30.0/60.0" in printed[3]


def test_a_line_compares_with_everything_on() -> None:
    base = {"start_s": 1.0, "scenarios": {"first-audio": figures(20.0, 40.0), "burst-2": figures(50.0, 400.0)}}
    slower = {"start_s": 2.0, "scenarios": {"first-audio": figures(60.0, 20.0), "burst-2": figures(90.0, 300.0)}}
    assert line("eager", slower, base).split() == [
        *("eager", "2.0"),
        *("60.0/120.0", "20.0", "50%"),
        *("90.0/180.0", "300.0", "75%"),
    ]
    assert "-" in line("eager", slower, None).split()
    nobody = {"start_s": 2.0, "scenarios": {"burst-2": {"first_audio_ms": None, "audio_s_per_s": 0.0}}}
    assert line("eager", nobody, base).split() == ["eager", "2.0", "-", "0.0", "0%"]


def test_a_wrong_command_is_one_line_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--rows", "dance"]) == 1
    assert main([*RUN, "--set", "nonsense=1"]) == 1
    assert [row[:23] for row in capsys.readouterr().err.splitlines()] == ["bench.engine.ablation: "] * 2


def test_two_rows_of_a_small_engine(tmp_path: Path) -> None:
    make_engine_dir(tmp_path / "model", SMALL, ConvertOptions(), Ending.NEVER)
    target = tmp_path / "ablation.json"
    options = ("--model", str(tmp_path / "model"), "--set", "max_clause_tokens=25", "--samples", "2", "--audio-s", "1")
    assert main([*RUN, *options, "--json", str(target), "--rows", "all", "eager"]) == 0
    rows = json.loads(target.read_text())["rows"]
    for row in rows.values():
        assert list(row["scenarios"]) == ["first-audio", "burst-2"]
        assert all(each["num_failed"] == 0 and each["num"] == 2 for each in row["scenarios"].values())
