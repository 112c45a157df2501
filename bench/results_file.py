"""The file that a benchmark leaves: JSON, of a kind that can be compared line by line."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from voicegate.bench import environment
from voicegate.engine.whole_file import write_whole


def save(report: Mapping[str, Any], path: Path | None) -> None:
    """None: nobody wants it. Directories on the way are made. A run that is killed leaves the file as it was."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"{json.dumps(report, indent=1)}\n".encode())


def gather(measure: Callable[[str], Mapping[str, Any]], kinds: Iterable[str], path: Path | None) -> None:
    """Gathers each kind's measurements, printed and saved as soon as they are there."""
    beside: dict[str, Mapping[str, Any]] = {}
    report = {"environment": environment.describe(), "beside": beside}
    for kind in kinds:
        beside[kind] = measure(kind)
        print(kind, json.dumps(beside[kind]), flush=True)
        save(report, path)
