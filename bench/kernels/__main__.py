"""Each captured piece of the models against its byte and FLOP floor, at full size with random weights on a GPU.

python -m voicegate.bench.kernels [--part llm flow vocoder] [--json bench/results/kernels-h200.json]

A part may be narrowed to sections of it: `--part flow.blocks flow.kinds llm`. Floors: bench/kernels/floors.py.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from voicegate.bench import environment, results_file
from voicegate.bench.kernels import flow, llm, stepaudio2, vocoder


@dataclass(frozen=True, slots=True)
class Part:
    measure: Callable[[Sequence[str]], dict[str, Any]]
    sections: tuple[str, ...]


PARTS: Final = {
    "llm": Part(llm.measure, llm.SECTIONS),
    "flow": Part(flow.measure, flow.SECTIONS),
    "vocoder": Part(vocoder.measure, vocoder.SECTIONS),
    "stepaudio2": Part(stepaudio2.measure, stepaudio2.SECTIONS),  # the second family's flow and vocoder
}


class UsageError(ValueError):
    """There is no such part or section. The message says what there is."""


def chosen_sections(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """PART or PART.SECTION, any number of them -> sections by part, in the order of PARTS. Raises UsageError."""
    chosen: dict[str, set[str]] = {}
    for name in names:
        part, _, section = name.partition(".")
        if part not in PARTS:
            raise UsageError(f"no part {part!r}; there are {', '.join(PARTS)}")
        sections = PARTS[part].sections
        if section and section not in sections:
            raise UsageError(f"{part} has no section {section!r}; it has {', '.join(sections)}")
        chosen.setdefault(part, set()).update([section] if section else sections)
    return {
        name: tuple(section for section in part.sections if section in chosen[name])
        for name, part in PARTS.items()
        if name in chosen
    }


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m voicegate.bench.kernels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sections = "; ".join(f"{name}: {', '.join(part.sections)}" for name, part in PARTS.items())
    parser.add_argument(
        "--part",
        nargs="+",
        default=list(PARTS),
        metavar="PART[.SECTION]",
        help=f"(default: {', '.join(PARTS)}) {sections}",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers; after each part, what there is")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        chosen = chosen_sections(options.part)
    except UsageError as error:
        print(f"bench.kernels: {error}", file=sys.stderr)
        return 1
    if not torch.cuda.is_available():
        print("bench.kernels: needs a CUDA device, and torch sees none", file=sys.stderr)
        return 1
    report: dict[str, Any] = {"environment": environment.describe()}
    for name, sections in chosen.items():
        print(f"=== {name}: {', '.join(sections)}", flush=True)
        report[name] = PARTS[name].measure(sections)
        torch.cuda.empty_cache()
        results_file.save(report, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
