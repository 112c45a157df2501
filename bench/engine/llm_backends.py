"""Backends of the speech LLM, compared: our CUDA runner, TensorRT-LLM and vLLM in the ways that they can be set up.

    python -m voicegate.bench.engine.llm_backends --model DIR --merged-hf DIR --json FILE [--rows ours in-process ...]

DIR, DIR: what `voicegate convert SRC DST --merged-hf DIR` made of one source. Each row is a run of bench.engine in a
process of its own: TensorRT-LLM asks once how it is to run, and its memory comes back when its process ends. The file
is written after each. Other options are bench.engine's. Nucleus sampling and NVIDIA's need trained weights: generated
ones choose text ids too, which are no speech. Neither TensorRT nor TensorRT-LLM was executed here (docs/adr/0015).
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from voicegate.bench import environment, results_file
from voicegate.bench.engine.__main__ import UsageError


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    settings: tuple[str, ...] = ()  # as --set takes them


_OURS: Final = "ours"
_TENSORRT_LLM: Final = "llm_backend=tensorrt-llm"
_VLLM: Final = "llm_backend=vllm"
ROWS: Final = (
    Row(_OURS, ("llm_backend=cuda",)),
    Row("in-process", (_TENSORRT_LLM,)),
    Row("worker-process", (_TENSORRT_LLM, "llm_options=worker=true")),
    Row("interval-1", (_TENSORRT_LLM, "llm_options=stream-interval=1")),
    Row("interval-4", (_TENSORRT_LLM, "llm_options=stream-interval=4")),
    Row("no-overlap", (_TENSORRT_LLM, "llm_options=overlap=false")),
    Row("no-reuse", (_TENSORRT_LLM, "llm_options=reuse=false")),
    Row("repetition-aware", (_TENSORRT_LLM, "llm_options=sampling=repetition-aware")),
    Row("vllm", (_VLLM,)),
    Row("vllm-nucleus", (_VLLM, "llm_options=sampling=nucleus")),
)

_SCENARIOS: Final = ("alone:whole", "live:128:whole", "closed:128:whole", "live:300:whole")


def chosen_rows(names: Sequence[str]) -> list[Row]:
    """In the order of ROWS. Raises UsageError."""
    known = [row.name for row in ROWS]
    if wrong := [name for name in names if name not in known]:
        raise UsageError(f"--rows: there is no {', '.join(wrong)}; there are {', '.join(known)}")
    return [row for row in ROWS if row.name in names]


def command(row: Row, options: argparse.Namespace, rest: Sequence[str], target: Path) -> list[str]:
    settings = (*row.settings, f"merged_hf_dir={options.merged_hf}")
    return [
        *(sys.executable, "-m", "voicegate.bench.engine", "--device", "cuda", "--model", str(options.model)),
        *("--scenarios", *options.scenarios, "--label", row.name, "--json", str(target), *rest),
        *(word for setting in settings for word in ("--set", setting)),
    ]


def measure_row(row: Row, options: argparse.Namespace, rest: Sequence[str]) -> dict[str, Any]:
    """bench.engine's report, or why there is none."""
    with TemporaryDirectory() as directory:
        target = Path(directory) / "row.json"
        words = command(row, options, rest, target)
        done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode == 0 and target.exists():
            report: dict[str, Any] = json.loads(target.read_text())
            return report
        told = done.stderr.strip().splitlines()
        return {"error": told[-1] if told else f"it ended with status {done.returncode}", "scenarios": {}}


def header(scenarios: Sequence[str]) -> str:
    share = f"of {_OURS}"
    return "  ".join([f"{'row':<18} {'start':>6}", *(f"{name:>15} {'a-s/s':>7} {share:>7}" for name in scenarios)])


def line(name: str, row: Mapping[str, Any], ours: Mapping[str, Any] | None) -> str:
    if "error" in row:
        return f"{name:<18} {row['error']}"
    cells = [f"{name:<18} {row['start_s']:>6.1f}"]
    for scenario, figures in row["scenarios"].items():
        first, rate = figures["first_audio_ms"], figures["audio_s_per_s"]
        times = f"{first['p50']:.1f}/{first['p95']:.1f}" if first is not None else "-"
        base = ours["scenarios"].get(scenario) if ours is not None else None
        share = f"{100 * rate / base['audio_s_per_s']:.0f}%" if base is not None and base["audio_s_per_s"] else "-"
        cells.append(f"{times:>15} {rate:>7.1f} {share:>7}")
    return "  ".join(cells)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m voicegate.bench.engine.llm_backends",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--merged-hf", type=Path, required=True, metavar="DIR")
    parser.add_argument("--rows", nargs="+", default=[row.name for row in ROWS], metavar="ROW", help="(default: each)")
    parser.add_argument("--scenarios", nargs="+", default=list(_SCENARIOS), metavar="NAME")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options, rest = parser().parse_known_args(arguments)
    try:
        rows = chosen_rows(options.rows)
    except UsageError as error:
        print(f"bench.engine.llm_backends: {error}", file=sys.stderr)
        return 1
    measured: dict[str, Any] = {}
    print(header(options.scenarios), flush=True)
    for row in rows:
        measured[row.name] = measure_row(row, options, rest)
        print(line(row.name, measured[row.name], measured.get(_OURS)), flush=True)
        results_file.save({"environment": environment.describe(), "rows": measured}, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
