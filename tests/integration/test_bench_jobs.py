"""bench.jobs: a real `voicegate serve` with the tiny model, jobs beside one live stream, and the table of it."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.golden import TINY_MODEL_DIR
from tests.unit.clients.deadline import deadline
from voicegate.bench import jobs
from voicegate.bench.jobs_table import jobs_table


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_SETTLE_S", 0.2)
    monkeypatch.setattr(jobs, "_GUARD_S", 0.1)
    monkeypatch.setenv("VOICEGATE_THREADS", "1")


def test_windows_without_jobs_and_with_them_are_in_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "jobs.json"
    flags = ["--model", str(TINY_MODEL_DIR), "--json", str(path), "--log", str(tmp_path / "log")]
    with deadline():
        jobs.main([*flags, "--loads", "closed:1", "--rounds", "2", "--duration-s", "1", "--queue-bytes", "6000"])
    report = json.loads(path.read_text())
    loads = [(window["load"], window["has_jobs"]) for window in report["windows"]]
    assert loads[:3] == [(None, True), ("closed:1:whole", False), ("closed:1:whole", True)]
    assert all((window["waiting_parts"] is not None) is window["has_jobs"] for window in report["windows"])
    assert {"voices", "seed", "queue_bytes", "environment"} <= report.keys()
    assert "the queue ran empty" not in capsys.readouterr().out
    *_, alone, _without, beside = jobs_table(report)
    assert alone.startswith("| none | yes | 1 | – |")
    assert beside.startswith("| closed:1:whole | yes |")


def test_what_has_no_time_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--model", str(TINY_MODEL_DIR), "--log", str(tmp_path / "log"), "--budget-s", "1", "--duration-s", "0.1"]
    with deadline():
        jobs.main([*flags, "--loads", "live:1:whole", "--queue-bytes", "600"])
    assert "live:1:whole: left out" in capsys.readouterr().out


def test_parts_of_a_queue_end_at_all_times() -> None:
    *short, long = jobs.texts(2000)
    assert len(short) == 128
    assert len({len(text) for text in short}) > 100
    few = sorted(len(text) for text in short[:4])
    assert min(after - before for before, after in pairwise(few)) > 50
    assert len(long) == 2000
