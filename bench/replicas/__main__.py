"""Engine processes behind a front (`serve --gpus`): what the way to them costs, and what several GPUs carry.

    python -m voicegate.bench.replicas hop [--streams 1 100 400] [--chunk-ms 200] [--seconds 10] [--json FILE]
    python -m voicegate.bench.replicas scale --model DIR --gpus 0,1 [--streams 300 400] [--json FILE] [--serve FLAGS...]
    python -m voicegate.bench.replicas placements --model DIR --gpus 0,1,2 [--streams 1 2 4 10] [--mixed 200 300]
        [--json FILE] [--serve FLAGS...]
    python -m voicegate.bench.replicas recipe --model DIR --gpus 0,1,2,3 [--tasks 1 2 3 4 5 6] [--json FILE]
        [--serve FLAGS...]

`hop` needs no GPU. `scale` measures the first GPU alone, then all with as many streams for each. `placements` measures
engine processes on all GPUs, then one engine with its LLM on the first (docs/adr/0051); cpu,cpu tries it without GPUs.
`recipe` prints the table of NVIDIA's recipe: the same with one token2wav, two, and so on.
"""

import argparse
from pathlib import Path
from typing import Any

from voicegate.bench import environment, results_file
from voicegate.bench.replicas import hop, placements, recipe, scale


def _hop(options: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    print(f"{'ms, p50 / p95':<16}{'here':>18}{'behind':>18}{'added':>18}")
    for num_streams in options.streams:
        row = hop.measure(num_streams, chunk_ms=options.chunk_ms, seconds=options.seconds)
        for way in ("packets_ms", "calls_ms"):
            parts = (row["here"][way], row["behind"][way], row["added"][way])
            cells = "".join(f"{part['p50']:.3f} / {part['p95']:.3f}".rjust(18) for part in parts)
            print(f"{num_streams:<8}{way.removesuffix('_ms'):<8}{cells}", flush=True)
        rows.append(row)
        told = {"chunk_ms": options.chunk_ms, "seconds": options.seconds, "rows": rows}
        results_file.save({"environment": environment.describe(), **told}, options.json)


def _scale(options: argparse.Namespace) -> None:
    gpus = options.gpus.split(",")
    rows: list[Any] = []
    for row in scale.measure(options.model, gpus, options.streams, options.serve):
        rows.append(row)
        print(f"{row['gpus']} GPU(s), {row['streams']} streams: {row['misses'] or 'held'}", flush=True)
        report = {"environment": environment.describe(), "gpus": gpus, "serve": options.serve, "rows": rows}
        results_file.save(report, options.json)
    one, all_of_them = scale.best(rows, 1), scale.best(rows, len(gpus))
    ratio = f", {all_of_them / one:.2f} times as many" if one else ""
    print(f"held: {one} streams by one, {all_of_them} by {len(gpus)}{ratio}")


def _placements(options: argparse.Namespace) -> None:
    gpus = options.gpus.split(",")
    rows: list[dict[str, Any]] = []
    try:
        for row in placements.measure(options.model, gpus, options.streams, options.mixed, options.serve):
            rows.append(row)
            report = {"environment": environment.describe(), "gpus": gpus, "serve": options.serve, "rows": rows}
            results_file.save(report, options.json)
    except ValueError as error:
        raise SystemExit(f"bench.replicas: {error}") from error
    print(placements.heading())
    for row in rows:
        print(placements.line(row))


def _recipe(options: argparse.Namespace) -> None:
    gpus = options.gpus.split(",")
    rows: list[dict[str, Any]] = []
    try:
        for row in recipe.measure(options.model, gpus, options.tasks, options.serve):
            rows.append(row)
            report = {"environment": environment.describe(), "gpus": gpus, "serve": options.serve, "rows": rows}
            results_file.save(report, options.json)
    except ValueError as error:
        raise SystemExit(f"bench.replicas: {error}") from error
    for line in recipe.table(rows):
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    hopping = commands.add_parser("hop")
    hopping.add_argument("--streams", type=int, nargs="+", default=[1, 100, 400])
    hopping.add_argument("--chunk-ms", type=int, default=200, help="of audio in an event (default: 200)")
    hopping.add_argument("--seconds", type=float, default=10.0)
    hopping.set_defaults(run=_hop)
    scaling = commands.add_parser("scale")
    scaling.add_argument("--model", type=Path, required=True, metavar="DIR")
    scaling.add_argument("--gpus", default="0,1")
    scaling.add_argument("--streams", type=int, nargs="+", default=[300, 400], help="for each GPU")
    scaling.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="flags of `voicegate serve`; last")
    scaling.set_defaults(run=_scale)
    placing = commands.add_parser("placements")
    placing.add_argument("--model", type=Path, required=True, metavar="DIR")
    placing.add_argument("--gpus", default="0,1")
    placing.add_argument("--streams", type=int, nargs="*", default=[1, 2, 4, 10], help="at any time, for each GPU")
    placing.add_argument("--mixed", type=int, nargs="*", default=[200, 300], help="live ones, for each GPU")
    placing.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="flags of `voicegate serve`; last")
    placing.set_defaults(run=_placements)
    tabling = commands.add_parser("recipe")
    tabling.add_argument("--model", type=Path, required=True, metavar="DIR")
    tabling.add_argument("--gpus", default="0,1,2,3")
    tabling.add_argument("--tasks", type=int, nargs="+", default=list(recipe.TASKS_PER_INSTANCE), help="an instance")
    tabling.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="flags of `voicegate serve`; last")
    tabling.set_defaults(run=_recipe)
    for command in (hopping, scaling, placing, tabling):
        command.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
