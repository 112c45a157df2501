"""Runs tests/gpu on this machine's GPU and keeps what they say, below a header of what they ran on, as plain text.

python -m voicegate.bench.gpu_tests [FILE] [-- PYTEST OPTIONS]      # FILE by default: bench/results/gpu-tests-h200.txt

Exit status is pytest's. BENCH_COMMIT names the commit where the code travels without its .git.
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

import torch

from voicegate.bench import environment

_DEFAULT_FILE: Final = environment.REPOSITORY / "bench" / "results" / "gpu-tests-h200.txt"
# -s: the errors that the tests measure and print are part of the result.
_PYTEST: Final = (sys.executable, "-m", "pytest", "-v", "-s", "-p", "no:cacheprovider", "-m", "gpu", "tests/gpu")


def header(described: Mapping[str, Any]) -> str:
    """A line a fact; what is not known is left out."""
    known = {name: value for name, value in described.items() if value is not None}
    width = max(map(len, known))
    return "".join(f"{name:{width}}  {value}\n" for name, value in known.items())


def copy_output(command: Sequence[str], *outputs: TextIO) -> int:
    """Its stdout and stderr to every output as they come; its exit status."""
    with subprocess.Popen(
        command, cwd=environment.REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            for output in outputs:
                output.write(line)
                output.flush()
    return process.returncode


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=_DEFAULT_FILE)
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:end])
    if not torch.cuda.is_available():
        print("bench.gpu_tests: needs a CUDA device, and torch sees none", file=sys.stderr)
        return 1
    options.file.parent.mkdir(parents=True, exist_ok=True)
    with options.file.open("w") as file:
        file.write(header(environment.describe()) + "\n")
        return copy_output([*_PYTEST, *given[end + 1 :]], sys.stdout, file)


if __name__ == "__main__":
    sys.exit(main())
