"""How long an engine takes to be ready, part by part; every start is a process of its own.

    python -m voicegate.bench.engine.start --device cuda --model DIR [--set NAME=VALUE] [--json FILE]

cold   nothing compiled before: the Triton cache is empty
warm   the same again, with what `cold` left in the cache

A CPU compiles nothing: its two are the same.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from voicegate.bench import environment, results_file
from voicegate.bench.engine.__main__ import UsageError, with_settings
from voicegate.engine.config import DEVICES, EngineConfig
from voicegate.engine.interface import EngineError
from voicegate.engine.load.build import create_engine
from voicegate.engine.load.progress import Lines
from voicegate.gateway.logs import configure_logs

STARTS: Final = ("cold", "warm")


async def start_once(config: EngineConfig) -> dict[str, Any]:
    """Seconds until ready, and the lines that told of it. Raises EngineError."""
    lines: list[str] = []
    engine = create_engine(config, on_progress=Lines(lines.append))
    started_s = time.monotonic()
    await engine.start()
    ready_s = time.monotonic() - started_s
    await engine.close()
    return {"ready_s": round(ready_s, 2), "progress": lines}


def start_in_process(name: str, arguments: Sequence[str], cache: Path) -> dict[str, Any]:
    """`arguments` as this program takes them. Raises EngineError with what the process said."""
    done = subprocess.run(
        [sys.executable, "-m", "voicegate.bench.engine.start", *arguments, "--one"],
        env={**os.environ, "TRITON_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise EngineError(f"{name}: {done.stderr.strip() or f'exit status {done.returncode}'}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m voicegate.bench.engine.start",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", type=Path, default=Path("models/tiny"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--device", choices=DEVICES, default="auto", help="(default: %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a field of EngineConfig")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers; after each start, what there is")
    parser.add_argument("--one", action="store_true", help="start once, with the cache as it is, and print JSON")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(given)
    configure_logs("error", "console")
    try:
        config = with_settings(EngineConfig(options.model, device=options.device), options.set)
        if options.one:
            print(json.dumps(asyncio.run(start_once(config))))
            return 0
        report: dict[str, Any] = {"environment": environment.describe(), "starts": {}}
        with TemporaryDirectory() as cache:
            for name in STARTS:
                found = start_in_process(name, given, Path(cache))
                report["starts"][name] = found
                results_file.save(report, options.json)
                print(f"{name:<6} ready after {found['ready_s']:6.1f} s", flush=True)
                print("".join(f"    {line}\n" for line in found["progress"]), end="", flush=True)
    except (UsageError, EngineError, ValueError) as error:
        print(f"bench.engine.start: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
