"""Rows of the comparison of LLM backends: what each process is asked for, and what a row that fails leaves behind."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from voicegate.bench.engine import llm_backends
from voicegate.bench.engine.__main__ import parser, with_settings
from voicegate.bench.engine.llm_backends import ROWS, main
from voicegate.engine.config import EngineConfig

COMMAND = ("--model", "model", "--merged-hf", "hf", "--scenarios", "alone:whole")
FIGURES = {"first_audio_ms": {"p50": 20.0, "p95": 30.0}, "audio_s_per_s": 8.0}


def test_each_row_is_a_setup_of_its_own() -> None:
    configs = [with_settings(EngineConfig(Path("model")), row.settings) for row in ROWS]
    assert len(set(map(repr, configs))) == len(ROWS)
    assert [config.llm_backend for config in configs] == ["cuda"] + ["tensorrt-llm"] * (len(ROWS) - 3) + ["vllm"] * 2


def test_every_row_is_a_process_and_one_that_fails_stops_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked: list[Any] = []
    real_run = subprocess.run

    def run(words: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
        if words[0] != sys.executable:  # git, for the commit
            return real_run(words, **how)
        options = parser().parse_args(words[3:])
        asked.append(options)
        if options.label == "worker-process":
            return subprocess.CompletedProcess(words, 1, stderr="...\ntensorrt_llm is not installed\n")
        options.json.write_text(json.dumps({"start_s": 1.0, "scenarios": {"alone:whole": FIGURES}}))
        return subprocess.CompletedProcess(words, 0, stderr="")

    monkeypatch.setattr(llm_backends.subprocess, "run", run)
    target = tmp_path / "rows.json"
    names = ("ours", "worker-process", "no-overlap")
    assert main([*COMMAND, "--json", str(target), "--rows", *names, "--num-alone", "7"]) == 0
    wanted = [row for row in ROWS if row.name in names]
    assert [options.set for options in asked] == [[*row.settings, "merged_hf_dir=hf"] for row in wanted]
    assert {options.num_alone for options in asked} == {7}
    rows = json.loads(target.read_text())["rows"]
    assert rows["worker-process"]["error"] == "tensorrt_llm is not installed"
    assert rows["no-overlap"]["scenarios"] == {"alone:whole": FIGURES}
    lines = capsys.readouterr().out.splitlines()
    assert "of ours" in lines[0]
    assert lines[3].split()[-1] == "100%"


def test_a_row_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--rows", "dance"]) == 1
    assert "there is no dance" in capsys.readouterr().err
