"""Decode steps, flow blocks and vocoder calls against their byte and FLOP floors, at full size with random weights.

python -m voicegate.bench.kernels [--part llm flow vocoder] [--json bench/results/kernels-h200.json]

On a GPU. Floors: bench/kernels/floors.py. What one kernel takes of a step is a profiler's to tell.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from voicegate.bench import environment, results_file
from voicegate.bench.kernels import flow, llm, vocoder

PARTS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "llm": llm.measure,
    "flow": flow.measure,
    "vocoder": vocoder.measure,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS), help="(default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers; after each part, what there is")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("bench.kernels: needs a CUDA device, and torch sees none", file=sys.stderr)
        return 1
    report: dict[str, Any] = {"environment": environment.describe()}
    for name in options.part:
        print(f"=== {name}", flush=True)
        report[name] = PARTS[name]()
        torch.cuda.empty_cache()
        results_file.save(report, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
