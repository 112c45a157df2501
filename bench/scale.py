"""Scale of several GPUs together (`serve --gpus`), against one of them: `bench.socket` at loads in proportion.

    python -m voicegate.bench.scale --model DIR --gpus 0,1 [--streams 300 400] [--json FILE] [--serve FLAGS...]

The first GPU alone, then all with as many streams for each.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from voicegate.bench import environment, results_file
from voicegate.clients.bench.ramp import Objective


def command(
    model: Path, gpus: Sequence[str], scenarios: Sequence[str], *, max_streams: int, flags: Sequence[str], report: Path
) -> list[str]:
    """`flags`: further ones of `voicegate serve`."""
    serve = ["--gpus", ",".join(gpus), "--max-sockets", str(max(2 * max_streams, 1024)), *flags]
    options = ["--model", str(model), "--json", str(report), "--scenarios", *scenarios]
    return [sys.executable, "-m", "voicegate.bench.socket", *options, "--serve", *serve]


def measure(model: Path, gpus: Sequence[str], streams_per_gpu: Sequence[int], flags: Sequence[str]) -> Iterator[Any]:
    """A row for each load: of the first GPU alone, then of all with as much for each. Raises CalledProcessError."""
    for num_streams in streams_per_gpu:
        for chosen in ((gpus[0],), gpus):
            yield _row(_run(model, chosen, num_streams * len(chosen), flags), len(chosen), num_streams)


def best(rows: Sequence[Mapping[str, Any]], num_gpus: int) -> int:
    """Streams of the largest load that this many GPUs held."""
    return max((row["streams"] for row in rows if row["gpus"] == num_gpus and row["misses"] is None), default=0)


def _run(model: Path, gpus: Sequence[str], num_streams: int, flags: Sequence[str]) -> Mapping[str, Any]:
    """Each scenario's row, None where it was left out. Raises CalledProcessError."""
    scenarios = ["alone:20j", f"mixed:{num_streams}"]
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "socket.json")
        subprocess.run(command(model, gpus, scenarios, max_streams=num_streams, flags=flags, report=report), check=True)
        told: Mapping[str, Any] = json.loads(report.read_text())["scenarios"]
    return told


def _row(scenarios: Mapping[str, Any], num_gpus: int, streams_per_gpu: int) -> Mapping[str, Any]:
    alone, loaded = scenarios.values()
    return {
        "gpus": num_gpus,
        "streams": num_gpus * streams_per_gpu,
        "misses": "it was left out" if loaded is None else Objective().misses(loaded),
        "alone": alone,
        "loaded": loaded,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, metavar="DIR")
    parser.add_argument("--gpus", default="0,1")
    parser.add_argument("--streams", type=int, nargs="+", default=[300, 400], help="for each GPU")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="flags of `voicegate serve`; last")
    options = parser.parse_args()
    gpus, rows = options.gpus.split(","), []
    for row in measure(options.model, gpus, options.streams, options.serve):
        rows.append(row)
        print(f"{row['gpus']} GPU(s), {row['streams']} streams: {row['misses'] or 'held'}", flush=True)
        report = {"environment": environment.describe(), "gpus": gpus, "serve": options.serve, "rows": rows}
        results_file.save(report, options.json)
    one, all_of_them = best(rows, 1), best(rows, len(gpus))
    ratio = f", {all_of_them / one:.2f} times as many" if one else ""
    print(f"held: {one} streams by one, {all_of_them} by {len(gpus)}{ratio}")


if __name__ == "__main__":
    main()
