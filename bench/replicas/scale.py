"""Scale of several GPUs together, against one of them: `bench.socket` with `--gpus`, at loads in proportion."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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
