"""How large the tree is, beside what it may be: `python -m voicegate.bench.budget`.

Lines of Python, blank ones and comments included, as `wc -l` counts them. It prints and fails nothing: a row above its
aim is a question to whoever adds the next concept.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    folders: tuple[str, ...]
    at_most: int
    without: tuple[str, ...] = ()  # folders below those, counted elsewhere or not at all
    counts_files: bool = False


_APART: Final = ("engine/families", "engine/backends")
ROWS: Final = (
    Row("engine: one family, torch and CUDA", ("engine",), 30_000, without=_APART),
    Row("engine: families and backends", _APART, 9_000),
    Row("gateway, protocol, clients", ("gateway", "protocol", "clients"), 23_500),
    Row("bench", ("bench",), 8_000),
    Row("tests", ("tests",), 56_000),
    Row("bench/results, files", ("bench/results",), 25, counts_files=True),
)


def size(row: Row, root: Path) -> int:
    if row.counts_files:
        return sum(1 for folder in row.folders for path in (root / folder).rglob("*") if path.is_file())
    return sum(path.read_bytes().count(b"\n") for path in _python_files(row, root))


def _python_files(row: Row, root: Path) -> Iterator[Path]:
    left_out = [root / folder for folder in row.without]
    for folder in row.folders:
        for path in (root / folder).rglob("*.py"):
            if not any(path.is_relative_to(each) for each in left_out) and "node_modules" not in path.parts:
                yield path


def table(sizes: dict[str, int]) -> Iterator[str]:
    yield f"{'':<36} {'lines':>7} {'at most':>8}"
    for row in ROWS:
        over = sizes[row.name] - row.at_most
        yield f"{row.name:<36} {sizes[row.name]:>7,} {row.at_most:>8,}{f'   {over:,} over' if over > 0 else ''}"


def main(arguments: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(prog="python -m voicegate.bench.budget", description=__doc__).parse_args(arguments)
    for line in table({row.name: size(row, REPOSITORY) for row in ROWS}):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
