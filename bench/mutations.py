"""Whether the tests notice when the heart of the code goes wrong: small seeded faults, and what caught each.

    python -m voicegate.bench.mutations [--num 40] [--seed 47] [--limit-s 60] [--json bench/results/mutations.json]

Each fault is made in a copy of the tree, one at a time. The tests of its module run first, then those beside it, then
tests of the whole, until one fails or the time is up. A run that was stopped goes on where it was.
"""

import argparse
import ast
import copy
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
import torch

from voicegate.bench import environment, results_file

HEART: Final = ("engine/core", "engine/flow", "engine/llm", "gateway/session")
# Tests of the whole, by a module's top folder: the quick ones first.
_OF_THE_WHOLE: Final = {
    "engine": ("tests/contract", "tests/unit/bench/test_simulated_gate.py", "tests/parity"),
    "gateway": ("tests/unit/gateway", "tests/integration/test_dialects.py", "tests/integration/test_resume.py"),
}
_HANGS_S: Final = 200.0
_SWAPPED: Final[dict[type[ast.AST], type[ast.AST]]] = {
    one: other
    for pair in (
        (ast.Lt, ast.LtE),
        (ast.Gt, ast.GtE),
        (ast.Eq, ast.NotEq),
        (ast.Is, ast.IsNot),
        (ast.In, ast.NotIn),
        (ast.And, ast.Or),
        (ast.Add, ast.Sub),
    )
    for one, other in (pair, pair[::-1])
}


@dataclass(frozen=True, slots=True)
class Mutation:
    path: str
    line: int
    before: str
    after: str
    begin: int  # characters of the file
    end: int

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line} {self.before} -> {self.after}"

    def applied(self, source: str) -> str:
        return source[: self.begin] + self.after + source[self.end :]


def mutated(node: ast.AST) -> ast.AST | None:
    """The node with one fault; None: it is of no kind that is changed."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _SWAPPED:
            changed: Any = copy.deepcopy(node)
            changed.ops = [_SWAPPED[type(op)]()]
        case ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in _SWAPPED:
            changed = copy.deepcopy(node)
            changed.op = _SWAPPED[type(op)]()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            changed = operand
        case ast.Constant(value=bool(value)):
            changed = ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            changed = ast.Constant(value + 1)
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Assign(targets=[ast.Attribute()]):
            changed = ast.Pass()
        case _:
            return None
    fixed: ast.AST = ast.fix_missing_locations(changed)
    return fixed


def mutations_of(path: str, source: str) -> Iterator[Mutation]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _running(ast.parse(source)):
        changed = mutated(node)
        if changed is not None and isinstance(node, ast.expr | ast.stmt):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            begin, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            after = ast.unparse(changed)
            after = f"({after})" if isinstance(node, ast.BoolOp | ast.BinOp | ast.Compare) else after
            yield Mutation(path, node.lineno, source[begin:end], after, begin, end)


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """All below it that runs: neither annotations nor decorators, and no parts of f-strings, which have no place."""
    yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                    yield from _running(child)


def drawn(root: Path, num: int, seed: int) -> list[Mutation]:
    """As many of each folder of the heart, each file as likely by what can go wrong in it; ASCII lines alone."""
    rng, chosen = random.Random(seed), list[Mutation]()
    for folder in HEART:
        found = [
            mutation
            for path in sorted((root / folder).rglob("*.py"))
            if "cuda" not in path.parts and (source := path.read_text()).isascii()
            for mutation in mutations_of(path.relative_to(root).as_posix(), source)
        ]
        chosen += rng.sample(found, num // len(HEART))
    return chosen


def tests_of(path: str, root: Path) -> list[str]:
    """In the order in which they run: named for the module, importing it, beside those, of the whole."""
    module = Path(path)
    mirrored = Path("tests/unit") / module.parent
    while not (root / mirrored).exists():
        mirrored = mirrored.parent
    files = sorted((root / mirrored).rglob("test_*.py"))
    imported = f"voicegate.{module.parent.as_posix().replace('/', '.')}"
    forms = (f"{imported}.{module.stem} import", f"{imported} import {module.stem}")

    def rank(file: Path) -> int:
        if file.stem.startswith(f"test_{module.stem}"):
            return 0
        return 1 if any(form in file.read_text() for form in forms) else 2

    ordered = sorted(files, key=lambda file: (rank(file), "cuda" in file.parts, file))
    named = [str(each.relative_to(root)) for each in ordered]
    return [*named, *(each for each in _OF_THE_WHOLE[module.parts[0]] if each != str(mirrored))]


def tried(mutation: Mutation, root: Path, limit_s: int) -> dict[str, Any]:
    """`caught_by`: the first test that failed, if one did in that CPU time; else the last one that ran."""
    path = root / mutation.path
    source = path.read_text()
    path.write_text(mutation.applied(source))
    output = root / "pytest.txt"
    try:
        child = os.fork()  # with torch loaded: a process of its own would take seconds to load it
        if not child:
            _test(root, tests_of(mutation.path, root), output, limit_s)
        status = _waited_for(child, output)
    finally:
        path.write_text(source)
    lines = output.read_text().splitlines()
    failed = [line.split(" - ")[0].split()[-1] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if failed:
        return {"caught_by": failed[0]}
    ran = [line.split()[0] for line in lines if "::" in line]
    if status is None:
        return {"caught_by": f"{ran[-1]}, which hangs"}
    return {"caught_by": None, "ran": "all" if status == 0 else f"until {ran[-1] if ran else 'collection'}"}


def _waited_for(child: int, output: Path) -> int | None:
    """Its status; None: nothing came of its tests for so long that one must hang."""
    begun_s = time.time()
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        said_s = max(begun_s, output.stat().st_mtime if output.exists() else 0.0)
        if time.time() - said_s > _HANGS_S:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.2)


def _test(root: Path, tests: Sequence[str], output: Path, limit_s: int) -> NoReturn:
    """Runs pytest there, on modules that are imported anew, and ends this process."""
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
    with output.open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.chdir(root)
    sys.path[:] = [str(root), *(each for each in sys.path if each not in ("", str(environment.REPOSITORY)))]
    for name in [name for name in sys.modules if name.split(".")[0] in ("voicegate", "tests", "__main__")]:
        del sys.modules[name]
    status = pytest.main(["-x", "-v", "-p", "no:cacheprovider", "-m", "not soak", *tests])
    sys.stdout.flush()
    os._exit(status)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=40)
    parser.add_argument("--seed", type=int, default=47)
    parser.add_argument("--limit-s", type=int, default=60, help="of CPU time, for all tests of a fault (default: 60)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    report: dict[str, Any] = {"environment": environment.describe(), "seed": options.seed, "mutations": {}}
    if options.json is not None and options.json.exists():
        report |= json.loads(options.json.read_text())
    torch.set_num_threads(1)  # as tests/conftest.py has it, which comes too late here
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".git", ".venv", "node_modules", "build", "dist", ".*_cache", ".hypothesis")
        shutil.copytree(environment.REPOSITORY, root, symlinks=True, ignore=ignored)
        for mutation in drawn(root, options.num, options.seed):
            if mutation.name not in report["mutations"]:
                found = tried(mutation, root, options.limit_s)
                report["mutations"][mutation.name] = {"line": mutation.line} | found
                print(mutation.name, "|", found["caught_by"] or f"SURVIVED ({found['ran']})", flush=True)
                results_file.save(report, options.json)
    outcomes = [each["caught_by"] is not None for each in report["mutations"].values()]
    print(f"{sum(outcomes)} of {len(outcomes)} caught")
    return 0


if __name__ == "__main__":
    sys.exit(main())
