"""Ablation: the worth of each choice that a user has on a GPU to the whole engine, which is built anew for every row.

    python -m voicegate.bench.engine.ablation --device cuda --model DIR --json FILE [--rows all ...]

Rows stand below, the most telling first; the file is written after each, so a time limit costs the last ones. Per row:
first audio of one stream at a time, then a burst. Every other option is bench.engine's, with defaults of few samples;
`--set` holds for all rows. Figures are noisier than bench.engine's own. What was decided has its figures in docs/adr.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import uvloop

from voicegate.bench import environment, results_file
from voicegate.bench.engine import __main__ as engine
from voicegate.bench.engine.__main__ import UsageError, run_of, with_settings
from voicegate.bench.engine.memory import free_gpu_memory
from voicegate.bench.engine.run import Run, measure_engine
from voicegate.engine.interface import EngineError
from voicegate.gateway.logs import configure_logs


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    settings: tuple[str, ...] = ()  # as --set takes them


ROWS: Final = (
    Row("all"),
    Row("eager", ("is_eager=true",)),
    # Less precise than the default, or more.
    Row("flow-float8", ("flow_products=float8",)),
    Row("kv-bfloat16", ("kv_dtype=bfloat16",)),
    Row("vocoder-tf32", ("vocoder_precision=tf32",)),
    Row("float32", ("precision=float32", "kv_dtype=float32", "vocoder_precision=float32")),
)

_DEFAULTS: Final = (
    *("--scenario", "first-audio", "burst-128"),
    *("--samples", "20", "--audio-s", "3..6", "--limit-s", "8"),
)


def chosen_rows(names: Sequence[str], rows: Sequence[Row] = ROWS) -> list[Row]:
    """In the order of `rows`. Raises UsageError."""
    known = [row.name for row in rows]
    wrong = [name for name in names if name not in known]
    if wrong:
        raise UsageError(f"--rows: there is no {', '.join(wrong)}; there are {', '.join(known)}")
    return [row for row in rows if row.name in names]


async def measure_row(run: Run, row: Row) -> dict[str, Any]:
    """Its figures, or why there are none."""
    result: dict[str, Any] = {"settings": list(row.settings), "scenarios": {}}
    try:
        config = with_settings(run.config, row.settings)
        await measure_engine(replace(run, config=config), result, _nothing, _nothing)
    except Exception as error:  # noqa: BLE001 - Triton's and CUDA's have no common class; the next row may do
        result["error"] = str(error)
    free_gpu_memory()  # of a row that failed
    return result


def line(name: str, row: Mapping[str, Any], base: Mapping[str, Any] | None) -> str:
    """`base`: the row with everything on, where it was measured."""
    if "error" in row:
        return f"{name:<18} {row['error']}"
    cells = [f"{name:<18} {row['start_s']:>6.1f}"]
    for scenario, figures in row["scenarios"].items():
        first, rate = figures["first_audio_ms"], figures["audio_s_per_s"]
        compared = base["scenarios"].get(scenario) if base is not None else None
        times = f"{first['p50']:.1f}/{first['p95']:.1f}" if first is not None else "-"
        cells.append(f"{times:>15} {rate:>7.1f} {_share(rate, compared):>6}")
    return "  ".join(cells)


def header(scenarios: Sequence[object], base: str = "all") -> str:
    share = f"of {base}"
    cells = [f"{'row':<18} {'start':>6}", *(f"{name!s:>15} {'a-s/s':>7} {share:>6}" for name in scenarios)]
    return "  ".join(cells)


def _share(rate: float, base: Mapping[str, Any] | None) -> str:
    """Share of the throughput with everything on."""
    return f"{100 * rate / base['audio_s_per_s']:.0f}%" if base is not None and base["audio_s_per_s"] else "-"


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m voicegate.bench.engine.ablation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", nargs="+", default=[row.name for row in ROWS], metavar="ROW", help="(default: each)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    own, rest = parser().parse_known_args(arguments)
    options = engine.parser().parse_args([*_DEFAULTS, *rest])
    configure_logs("error", "console")
    try:
        run, rows = run_of(options), chosen_rows(own.rows)
    except (UsageError, EngineError) as error:
        print(f"bench.engine.ablation: {error}", file=sys.stderr)
        return 1
    measured: dict[str, Any] = {}
    report = {"environment": environment.describe(), "rows": measured}
    print(header(run.scenarios), flush=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for row in rows:
            measured[row.name] = runner.run(measure_row(run, row))
            print(line(row.name, measured[row.name], measured.get("all")), flush=True)
            results_file.save(report, options.json)
    return 0


def _nothing(_: object) -> None:
    pass


if __name__ == "__main__":
    sys.exit(main())
