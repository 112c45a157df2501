"""bench.engine.start: a start with its parts, and a process that cannot start."""

import json
from pathlib import Path

import pytest

from voicegate.bench.engine import start
from voicegate.bench.engine.start import main, start_in_process
from voicegate.engine.interface import EngineError


def test_one_start_tells_when_it_is_ready_and_of_its_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(start, "configure_logs", lambda *_: None)  # logging is the whole process's
    assert main(["--one", "--device", "cpu", "--set", "threads=1"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["ready_s"] > 0
    assert [line.partition(":")[0] for line in found["progress"]][1:5] == ["text", "speech LLM", "vocoder", "flow"]


def test_what_a_process_says_when_it_cannot_start_is_told(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"cold: .*is not a voicegate model directory"):
        start_in_process("cold", ["--device", "cpu", "--model", str(tmp_path)], tmp_path)
