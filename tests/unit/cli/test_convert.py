"""Output of `voicegate convert`: a bar on a terminal, a line a part elsewhere. The conversion has tests of its own."""

import io
import sys

import pytest

from voicegate.gateway.cli.convert import TerminalProgress
from voicegate.gateway.cli.main import run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(progress: TerminalProgress) -> None:
    progress.begin("llm.safetensors", 100)
    for _ in range(100):
        progress.advance(1)
    progress.finish("1.0 MB")
    progress.remark("by the way")


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show(TerminalProgress())
    assert capsys.readouterr().err == "llm.safetensors: 1.0 MB\nnote: by the way\n"


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    show(TerminalProgress())
    drawn = terminal.getvalue().split("\r")
    bars = [line for line in drawn if line.startswith("llm.safetensors [")]
    assert len(bars) == 31  # drawn anew only where a cell is filled
    assert bars[0].endswith("0%")
    assert bars[-1] == f"llm.safetensors [{'#' * 30}] 100%"
    assert drawn[-2:] == ["\x1b[Kllm.safetensors: 1.0 MB\n", "\x1b[Knote: by the way\n"]


def test_a_part_of_unknown_size_has_an_empty_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = TerminalProgress()
    progress.begin("x", 0)
    progress.advance(5)
    assert terminal.getvalue().count("[") == 1


def test_unknown_dtypes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["convert", "a", "b", "--llm-dtype", "int8"])
    assert "invalid choice: 'int8'" in capsys.readouterr().err
