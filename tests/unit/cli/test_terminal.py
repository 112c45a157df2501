"""A bar while an engine starts on a terminal; lines where they are wanted."""

import io
import sys

import pytest

from voicegate.engine.load.progress import Named
from voicegate.gateway.cli.terminal import StartProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def start(progress: StartProgress) -> None:
    progress.line("text: 0.3 s")
    for num_done in range(1, 107):
        progress.share("compiling kernels", num_done, 106)
    progress.line("kernels compiled: 24.1 s")


@pytest.mark.parametrize("has_lines", [True, False])
def test_no_bar_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str], has_lines: bool) -> None:
    start(StartProgress(has_lines=has_lines))
    assert capsys.readouterr().err == ("text: 0.3 s\nkernels compiled: 24.1 s\n" if has_lines else "")


@pytest.mark.parametrize("has_lines", [True, False])
def test_a_bar_that_is_gone_when_the_part_is_done(monkeypatch: pytest.MonkeyPatch, has_lines: bool) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    start(StartProgress(has_lines=has_lines))
    drawn = terminal.getvalue().split("\r")
    bars = [line for line in drawn if line.startswith("compiling kernels [")]
    assert len(bars) == 30  # drawn anew only where a cell is filled
    assert bars[15] == f"compiling kernels [{'#' * 15}{'.' * 15}]  50%"
    assert drawn[drawn.index(bars[-1]) + 1].startswith("\x1b[K")
    assert ("kernels compiled: 24.1 s" in drawn[-1]) is has_lines


def test_a_shorter_bar_leaves_nothing_of_a_longer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several engines may start at once, each with its name before the part."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = StartProgress()
    Named("cuda:10", progress).share("compiling kernels", 1, 2)
    Named("cuda:9", progress).share("compiling kernels", 1, 2)
    _, _, cleared, last = terminal.getvalue().split("\r")
    assert cleared == "\x1b[K"
    assert last.startswith("cuda:9: compiling kernels [")
