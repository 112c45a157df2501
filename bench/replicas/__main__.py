"""Engine processes behind a front (`serve --gpus`): what the way to them costs, and what several GPUs carry.

    python -m voicegate.bench.replicas hop [--streams 1 100 400] [--chunk-ms 200] [--seconds 10] [--json FILE]
    python -m voicegate.bench.replicas scale --model DIR --gpus 0,1 [--streams 300 400] [--json FILE] [--serve FLAGS...]

`hop` needs no GPU. `scale` measures the first GPU alone, then all with as many streams for each.
"""

import argparse
from pathlib import Path
from typing import Any

from voicegate.bench import environment, results_file
from voicegate.bench.replicas import hop, scale


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
    for command in (hopping, scaling):
        command.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
