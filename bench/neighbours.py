"""What busy neighbours on the same cores cost: `python -m voicegate.bench.neighbours [--json FILE]`.

bench.engine's CPU figures while 0, 1 and 2 other processes compute as hard as they can; with one thread and with one a
core, whose threads sleep while they wait for each other (the default, engine/__init__.py) or spin (OpenMP's own). Needs
a machine with nothing else to do.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from voicegate.bench import environment, results_file

# Above what engine/__init__.py sets, which this process has from there.
_POLICIES: Final = {
    "shipped": {},
    "sleep": {"GOMP_SPINCOUNT": "0"},
    "spin": {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "INFINITE"},
}
_NUM_RUNS: Final = 5


@contextmanager
def neighbours(num: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(num)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure(threads: int, policy: str) -> dict[str, Any]:
    """In a process of its own: OpenMP reads its settings once."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "figures.json")
        command = ["-m", "voicegate.bench.engine", "--threads", str(threads), "--samples", str(_NUM_RUNS)]
        subprocess.run(
            [sys.executable, *command, "--json", str(file)],
            check=True,
            stdout=subprocess.DEVNULL,
            env=os.environ | _POLICIES[policy],
        )
        short = json.loads(file.read_text())["short"]
    return {"first_audio_ms": short["first_audio_ms"]["p50"], "rtf": short["rtf"]["p50"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    num_cores = len(os.sched_getaffinity(0))  # fewer, under taskset
    rows: list[dict[str, Any]] = []
    for threads, policy in ((1, "sleep"), (num_cores, "shipped"), (num_cores, "sleep"), (num_cores, "spin")):
        for num in (0, 1, 2):
            with neighbours(num):
                figures = measure(threads, policy)
            rows.append({"threads": threads, "waiting": policy, "neighbours": num, **figures})
            print(rows[-1], flush=True)
            if options.json is not None:
                results_file.save({"environment": environment.describe(), "rows": rows}, options.json)


if __name__ == "__main__":
    main()
