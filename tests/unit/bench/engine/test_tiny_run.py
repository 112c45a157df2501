"""bench.engine from start to finish on models that a test can afford: that it works, not how fast."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.quick_model import quick_model
from tests.support.upstream_source import SMALL
from tests.unit.clients.deadline import deadline
from voicegate.bench.engine import __main__ as engine
from voicegate.bench.engine import run
from voicegate.bench.full_size.engine_dir import Ending, make_engine_dir
from voicegate.clients.bench import schedule
from voicegate.engine.checkpoint.conversion import ConvertOptions


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_WARM_S", 0.0)
    monkeypatch.setattr(schedule, "_SETTLE_S", 600.0)  # nobody is cut off, however busy the machine is
    monkeypatch.setattr(engine, "configure_logs", lambda *_: None)  # logging is the whole process's


def run_of(target: Path, *arguments: str) -> dict[str, Any]:
    with deadline():
        assert engine.main(["--device", "cpu", "--threads", "1", "--json", str(target), *arguments]) == 0
    report: dict[str, Any] = json.loads(target.read_text())
    return report


def test_two_streams_of_the_tiny_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = run_of(tmp_path / "run.json", "--scenarios", "closed:2", "--duration-s", "0.1", "--label", "try")
    assert (report["label"], report["model"]) == ("try", "voicegate-tiny")
    row = report["scenarios"]["closed:2:whole"]
    assert row["outcomes"]["done"] == row["first_audio_ms"]["num"] == 2
    assert row["stages"].keys() >= {"llm", "flow", "vocoder"}
    assert row["stages"]["llm"]["rtf"] > 0
    assert row["messages"] == []
    assert "text given whole, not as an agent writes it" in report["flattered_by"]
    assert report["environment"]["command"]
    assert "closed:2:whole" in capsys.readouterr().out


def test_a_model_that_never_stops_and_listeners_who_interrupt_it(tmp_path: Path) -> None:
    make_engine_dir(tmp_path / "model", SMALL, ConvertOptions(), Ending.NEVER)
    report = run_of(
        *(tmp_path / "run.json", "--model", str(tmp_path / "model"), "--set", "max_clause_tokens=25"),
        *("--scenarios", "alone:40", "--num-alone", "3"),
    )
    assert report["config"]["max_clause_tokens"] == 25
    row = report["scenarios"]["alone:40"]
    assert row["outcomes"]["cancelled"] == row["stop_ms"]["num"] == 3
    assert row["first_audio_ms_by_writer"].keys() == {"40"}
    assert report["flattered_by"][-1] == "all speak with one voice"


def test_what_the_engine_refuses_is_told(tmp_path: Path) -> None:
    model = str(quick_model(tmp_path / "model"))
    report = run_of(
        *(tmp_path / "run.json", "--model", model, "--scenarios", "closed:3", "--duration-s", "0.1"),
        *("--set", "max_utterances=1", "--set", "max_waiting_utterances=1"),
    )
    row = report["scenarios"]["closed:3:whole"]
    assert row["outcomes"]["refused"] >= 1
    assert row["outcomes"]["done"] >= 1
    wrong = run_of(
        tmp_path / "wrong.json",
        "--model",
        model,
        "--scenarios",
        "alone:whole",
        "--num-alone",
        "1",
        "--voices",
        "nobody",
    )
    (message,) = wrong["scenarios"]["alone:whole"]["messages"]
    assert "nobody" in message
