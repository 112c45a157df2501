"""First audio, gaps and load through real sockets, against `voicegate serve` as shipped, started here.

    python -m voicegate.bench.socket --model DIR [--json FILE] [--budget-s 200] [--mode auto]
        [--scenarios alone:20j live:128:whole mixed:400 ...] [--serve --kv-dtype float8 ...]

The clients are `voicegate bench`'s, in processes of their own. For a server that runs elsewhere: `voicegate bench URL`.
"""

import argparse
import asyncio
import json
import math
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from voicegate.bench import environment, results_file
from voicegate.clients.bench import table
from voicegate.clients.bench.plan import Target
from voicegate.clients.bench.ramp import Objective
from voicegate.clients.bench.scenario import Kind, Scenario, parse
from voicegate.clients.bench.schedule import Settings
from voicegate.clients.bench.session import Bench

# The most wanted first: a budget cuts the end.
SCENARIOS: Final = (
    "alone:20j",
    "alone:whole",
    "mixed:400",
    "live:400:20j",
    "live:400:whole",
    "live:128:20j",
    "live:128:whole",
    "alone:20",
    "alone:40j",
    "alone:40",
    "alone:10j",
    "mixed:500",
    "live:500:whole",
)
_START_LIMIT_S: Final = 150.0
_STOP_LIMIT_S: Final = 20.0


@contextmanager
def serving(model: Path, flags: Sequence[str], log: Path) -> Iterator[tuple[str, int, float]]:
    """Its url, process id, and seconds until it was ready. Raises RuntimeError where it does not come up."""
    command = [sys.executable, "-m", "voicegate", "serve", "--model-dir", str(model), "--port", "0", *flags]
    began_s = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True)
    try:
        url = _announced_url(process, log)
        with urllib.request.urlopen(url.replace("ws://", "http://").rpartition("/v1/")[0] + "/readyz") as answer:
            if answer.status != 200:
                raise RuntimeError(f"/readyz says {answer.status}")
        yield url, process.pid, time.monotonic() - began_s
    finally:
        process.terminate()
        try:
            process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _announced_url(process: "subprocess.Popen[str]", log: Path) -> str:
    """From `voicegate is ready: URL, model ...`."""
    assert process.stdout is not None
    for line in process.stdout:
        if "is ready: " in line:
            return line.partition("is ready: ")[2].partition(",")[0]
    raise RuntimeError(f"the server did not start (status {process.wait()}):\n{log.read_text()[-2000:]}")


def flattery(voices: Sequence[str]) -> list[str]:
    """Where the figures were given more than a gateway in service is."""
    phrases = ["clients and server share one machine: the loopback is their network, its cores are both's"]
    phrases.append("connections are open before they are used, as agents' are")
    if "generated" in voices[0]:
        phrases.append("generated weights: speech ends with its text, and a text always takes the same time")
    if len(voices) == 1:
        phrases.append("all speak with one voice")
    return phrases


async def measure(options: argparse.Namespace, url: str, pid: int) -> dict[str, Any]:
    """Scenario after scenario; what the budget has no room for is None."""
    voices = _voices(url)
    settings = Settings(
        voices=voices,
        mode=options.mode,
        duration_s=options.duration_s,
        num_alone=options.num_alone,
        seed=options.seed,
    )
    bench = Bench(Target(url), settings, server_pid=pid)
    end_s = time.monotonic() + options.budget_s
    rows: dict[str, Any] = {}
    print(table.heading(), flush=True)
    for scenario in options.scenarios:
        name, left_s, needed_s = str(scenario), end_s - time.monotonic(), bench.needed_s(scenario)
        if needed_s > left_s:
            print(f"{name}: left out, it takes {needed_s:.0f} s and {left_s:.0f} s are left", flush=True)
            rows[name] = None
            continue
        rows[name] = await bench.measure(scenario)
        print("\n".join(table.lines(name, rows[name])), flush=True)
    return {
        "voices": voices,
        "mode": options.mode,
        "flattery": flattery(voices),
        "scenarios": rows,
        "sustained_mixed_streams": _sustained(rows),
    }


def _sustained(rows: Mapping[str, Any]) -> int | None:
    """The largest mixed load without a gap over 100 ms for 99.5 %, and with nobody lost."""
    objective = Objective(first_audio_p95_ms=math.inf)
    mixed = {parse(name): row for name, row in rows.items() if row is not None}
    held = [each.num_streams for each, row in mixed.items() if each.kind is Kind.MIXED and not objective.misses(row)]
    return max(held, default=None)


def _voices(url: str) -> list[str]:
    with urllib.request.urlopen(url.replace("ws://", "http://").rpartition("/v1/")[0] + "/v1/voices") as answer:
        return [voice["name"] for voice in json.load(answer)["voices"]]


def _scenario(text: str) -> Scenario:
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--log", type=Path, default=Path("build/bench-socket.log"), help="of the server")
    parser.add_argument("--scenarios", nargs="+", type=_scenario, default=[parse(text) for text in SCENARIOS])
    parser.add_argument("--mode", default="auto")
    parser.add_argument("--duration-s", type=float, default=10.0, help="arrivals within it are measured (default: 10)")
    parser.add_argument("--num-alone", type=int, default=20, help="sentences of one stream alone (default: 20)")
    parser.add_argument(
        "--budget-s", type=float, default=math.inf, help="of all scenarios; what has no room is left out"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="flags of `voicegate serve`; last")
    options = parser.parse_args()
    report: dict[str, Any] = {"environment": environment.describe(), "serve": options.serve}
    with serving(options.model, options.serve, options.log) as (url, pid, start_s):
        print(f"ready after {start_s:.1f} s: {url}", flush=True)
        report["start_s"] = round(start_s, 1)
        report |= asyncio.run(measure(options, url, pid))
    results_file.save(report, options.json)


if __name__ == "__main__":
    main()
