"""Output of the commands: results on stdout, all else on stderr, errors in one line, and progress bars."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Final

_BAR_CELLS: Final = 30


class CommandError(Exception):
    """The command cannot be carried out; the message is one line that says what to do."""


def open_standard_streams() -> None:
    """Those that this process was started without: else a socket gets their number, and what is said goes there."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:  # a lower one, of which this process has no use
                os.dup2(opened, descriptor)
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115 - for as long as the process lives


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def note(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@contextmanager
def changing(file: Path, what: str = "written") -> Iterator[None]:
    """Raises CommandError where `file` cannot be."""
    try:
        yield
    except OSError as error:
        raise CommandError(f"{file} cannot be {what}: {error.strerror or error}") from error


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """The file to write; it becomes `target` once it is whole. Raises CommandError."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with changing(target):
            yield partial
            partial.replace(target)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


class Bar:
    """On stderr where that is a terminal, else nothing. A terminal shows one."""

    _shown: ClassVar["Bar | None"] = None

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._is_terminal = self._stream.isatty()
        self._drawn: tuple[str, int] | None = None

    def draw(self, part: str, share: float) -> None:
        """`share` done of `part`, 0 to 1; written anew only where a cell is filled."""
        num_cells = int(share * _BAR_CELLS)
        if not self._is_terminal or self._drawn == (part, num_cells):
            return
        if self._drawn is not None and self._drawn[0] != part:
            self.clear()
        Bar._shown = self
        self._drawn = (part, num_cells)
        bar = "#" * num_cells + "." * (_BAR_CELLS - num_cells)
        self._stream.write(f"\r{part} [{bar}] {share:4.0%}")
        self._stream.flush()

    def clear(self) -> None:
        Bar._shown = None
        self._drawn = None
        if self._is_terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def clear_bar() -> None:
    """For commands that end in the middle of something: what the terminal shows next has a line of its own."""
    if Bar._shown is not None:
        Bar._shown.clear()


class StartProgress:
    """Progress of an engine's start (engine.startup.Progress): a bar while something takes long, a line a part."""

    def __init__(self, *, has_lines: bool = True) -> None:
        """`has_lines` off: the log has them."""
        self._has_lines = has_lines
        self._bar = Bar()

    def line(self, text: str) -> None:
        if self._has_lines:
            self._bar.clear()
            note(text)

    def share(self, part: str, num_done: int, num_steps: int) -> None:
        if num_done < num_steps:
            self._bar.draw(part, num_done / num_steps)
        else:
            self._bar.clear()
