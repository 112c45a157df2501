"""What the engine's own Python takes if mypyc has compiled it: an experiment, nothing of which ships (docs/adr/0057).

    python -m voicegate.bench.compiled [--rounds 3] [--scenario live:400:20] [--duration-s 1] [--json FILE]

A copy of the tree below build/ gets the compiled modules; then bench.simulated --host-time runs on both in turn. What
the load's listeners had must be equal. Needs the `dev` extra and a C compiler; compiling takes minutes.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from voicegate.bench import environment, results_file

_COPY: Final = environment.REPOSITORY / "build" / "compiled"
_FOLDERS: Final = ("bench", "clients", "engine", "gateway", "protocol", "voicegate")
# What the engine's thread runs of its own; runners and kernels are numpy's and torch's. No class of which interpreted
# ones inherit, such as LiveSequences: mypyc refuses that when they are made.
_COMPILED: Final = (
    "policy/*.py",
    "text/*.py",
    "text/english/*.py",
    "loop/*.py",
    "llm/sequence.py",
    "llm/silent_filter.py",
    "llm/stepped.py",
)
# Seams between threads and protocols alone: nothing to win.
_LEFT: Final = ("__init__.py", "driven.py", "requests.py", "stages.py", "worker.py")
_SETUP: Final = """
import sys
from mypyc.build import mypycify
from setuptools import setup
modules = mypycify(["--follow-imports=silent", *sys.argv[1:]], opt_level="3")
setup(name="compiled", ext_modules=modules, script_args=["--quiet", "build_ext", "--inplace"])
"""


def compile_copy() -> int:
    """Returns how many modules it has compiled. Raises CalledProcessError."""
    shutil.rmtree(_COPY, ignore_errors=True)
    for folder in _FOLDERS:
        source = environment.REPOSITORY / folder
        shutil.copytree(source, _COPY / folder, symlinks=True, ignore=shutil.ignore_patterns("results", "__pycache__"))
    shutil.copy(environment.REPOSITORY / "pyproject.toml", _COPY)
    (_COPY / "models").symlink_to(environment.REPOSITORY / "models")
    engine = _COPY / "voicegate" / "engine"
    found = [path for pattern in _COMPILED for path in sorted(engine.glob(pattern)) if path.name not in _LEFT]
    modules = [str(path.relative_to(_COPY)) for path in found]
    subprocess.run([sys.executable, "-c", _SETUP, *modules], cwd=_COPY, check=True, stdout=subprocess.DEVNULL)
    return len(modules)


def simulated(tree: Path, scenario: str, duration_s: float) -> dict[str, Any]:
    """Of `bench.simulated` in that tree. Raises CalledProcessError."""
    with TemporaryDirectory() as directory:
        file = Path(directory) / "simulated.json"
        words = ["--scenarios", scenario, "--duration-s", str(duration_s), "--host-slowdown", "1", "--host-time"]
        command = [sys.executable, "-m", "voicegate.bench.simulated", *words, "--json", str(file)]
        subprocess.run(command, cwd=tree, check=True, stdout=subprocess.DEVNULL)
        found: dict[str, Any] = json.loads(file.read_text())["scenarios"][scenario]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scenario", default="live:400:20")
    parser.add_argument("--duration-s", type=float, default=1.0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    num_modules = compile_copy()
    print(f"{num_modules} modules compiled", flush=True)
    rows: list[dict[str, Any]] = []
    heard: list[Any] = []
    for _ in range(options.rounds):
        for kind, tree in (("interpreted", environment.REPOSITORY), ("compiled", _COPY)):
            found = simulated(tree, options.scenario, options.duration_s)
            host = found.pop("host")
            heard.append(found)
            rows.append({"kind": kind, **host})
            us = ", ".join(f"{name} {value:.1f}" for name, value in host["us"].items())
            print(f"{kind:12} {host['cpu_s']:.2f} s of CPU, {host['yardsticks']} yardsticks; us a {us}", flush=True)
            report = {"scenario": options.scenario, "num_modules": num_modules, "rows": rows}
            results_file.save({"environment": environment.describe(), **report}, options.json)
    if any(each != heard[0] for each in heard):
        raise SystemExit("bench.compiled: listeners did not have the same on both")


if __name__ == "__main__":
    main()
