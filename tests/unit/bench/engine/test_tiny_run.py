"""bench.engine from start to finish on models that a test can afford: that it works, not how fast."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.upstream_source import SMALL
from voicegate.bench.engine import __main__ as engine
from voicegate.bench.engine import scenarios
from voicegate.bench.full_size.engine_dir import Ending, make_engine_dir
from voicegate.engine.checkpoint.conversion import ConvertOptions


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "_SETTLE_S", 0.0)
    monkeypatch.setattr(engine, "configure_logs", lambda *_: None)  # logging is the whole process's


def run_of(target: Path, *arguments: str) -> dict[str, Any]:
    assert engine.main(["--device", "cpu", "--threads", "1", "--json", str(target), *arguments]) == 0
    run: dict[str, Any] = json.loads(target.read_text())
    return run


def test_two_streams_of_the_tiny_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(tmp_path / "run.json", "--scenario", "burst-2", "--samples", "2", "--audio-s", "1", "--label", "try")
    assert (run["label"], run["lengths"], run["model"]) == ("try", "natural", "voicegate-tiny")
    row = run["scenarios"]["burst-2"]
    assert (row["streams"], row["num"], row["num_failed"], row["num_cut_off"]) == (2, 2, 0, 0)
    assert row["first_audio_ms"]["num"] == 2
    # Learned from other sentences: within a factor of two, or texts are not what was asked for.
    assert 0.5 < row["audio_as_expected"] < 2.0
    assert run["environment"]["command"]
    assert "burst-2" in capsys.readouterr().out


def test_every_scenario_and_the_plain_way_on_a_model_that_never_stops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_engine_dir(tmp_path / "model", SMALL, ConvertOptions(), Ending.NEVER)
    run = run_of(
        *(tmp_path / "run.json", "--model", str(tmp_path / "model"), "--set", "max_clause_tokens=25"),
        *("--scenario", "first-audio", "live-2", "burst-2", "cancel-1", "memory", "--text", "paced"),
        *("--samples", "2", "--duration-s", "0.5", "--audio-s", "1..2", "--baseline", "--baseline-utterances", "1"),
    )
    assert (run["lengths"], run["config"]["max_clause_tokens"]) == ("limit", 25)
    rows = run["scenarios"]
    assert list(rows) == ["first-audio", "live-2", "burst-2", "cancel-1", "memory"]
    assert rows["memory"] == {"not_measured": "no CUDA device"}
    for name in ("first-audio", "live-2", "burst-2"):
        assert rows[name]["num"] >= 2
        assert rows[name]["num_failed"] == 0
        # Every clause is cut at 25 tokens, which are 1 s.
        assert rows[name]["audio_as_expected"] == pytest.approx(1.0, abs=0.1)
    assert rows["live-2"]["is_sustained"] in (True, False)
    assert rows["cancel-1"]["cancel_ms"]["num"] >= 2
    assert list(run["plain"]["by_llm"]) == list(run["ratios"]) == ["lean", "transformers"]
    for llm, figures in run["plain"]["by_llm"].items():
        assert (figures["first_audio_ms"]["num"], figures["rtf"]["num"]) == (5, 1)
        assert run["ratios"][llm]["first_audio"] > 0
        assert run["ratios"][llm]["throughput"] > 0
    assert run["targets"] == []  # those are a GPU's
    printed = capsys.readouterr().out
    assert "plain way" in printed
    assert "cancel to slot free" in printed
