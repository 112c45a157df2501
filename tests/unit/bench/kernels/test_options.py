"""The front door: its parts, and what it says without a GPU. Every measurement module is imported."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from voicegate.bench.kernels import __main__ as front
from voicegate.bench.kernels.__main__ import main


def test_without_a_gpu_it_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main([]) == 1
    assert capsys.readouterr().err == "bench.kernels: needs a CUDA device, and torch sees none\n"


def test_results_are_written_after_each_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "results" / "kernels.json"
    written: list[Any] = []

    def measure_second() -> dict[str, Any]:
        written.append(json.loads(path.read_text()))
        return {}

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(front.environment, "describe", lambda: {"gpu": "a card"})
    monkeypatch.setattr(front, "PARTS", {"llm": lambda: {"us": {1: 2.5}}, "flow": measure_second})
    assert main(["--part", "llm", "flow", "--json", str(path)]) == 0
    expected = {"environment": {"gpu": "a card"}, "llm": {"us": {"1": 2.5}}}
    assert written == [expected]
    assert json.loads(path.read_text()) == expected | {"flow": {}}
