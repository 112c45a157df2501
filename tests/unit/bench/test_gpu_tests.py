"""The record of a run on a GPU: a header of facts, then pytest's own words, and pytest's status."""

import sys
from pathlib import Path

import pytest
import torch

from voicegate.bench import gpu_tests
from voicegate.bench.environment import REPOSITORY
from voicegate.bench.gpu_tests import header, main


def test_every_file_has_the_mark_by_which_its_tests_are_chosen() -> None:
    files = list((REPOSITORY / "tests" / "gpu").glob("test_*.py"))
    assert files
    assert not [path.name for path in files if "pytest.mark.gpu" not in path.read_text()]


def test_a_header_has_a_line_for_what_is_known() -> None:
    assert header({"gpu": "a card", "is_dirty": False, "triton": None}) == "gpu       a card\nis_dirty  False\n"


@pytest.mark.parametrize("status", [0, 1])
def test_output_follows_the_header_and_the_status_is_the_tests(
    status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = f"import sys; print('said', sys.argv[1:]); print('warned', file=sys.stderr); sys.exit({status})"
    monkeypatch.setattr(gpu_tests, "_PYTEST", (sys.executable, "-u", "-c", said))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu_tests.environment, "describe", lambda: {"gpu": "a card", "commit": "abc"})
    path = tmp_path / "results" / "tests.txt"
    assert main([str(path), "--", "-k", "flow"]) == status
    assert path.read_text() == "gpu     a card\ncommit  abc\n\nsaid ['-k', 'flow']\nwarned\n"
    assert capsys.readouterr().out == "said ['-k', 'flow']\nwarned\n"


def test_without_a_gpu_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    path = tmp_path / "tests.txt"
    assert main([str(path)]) == 1
    assert capsys.readouterr().err == "bench.gpu_tests: needs a CUDA device, and torch sees none\n"
    assert not path.exists()
