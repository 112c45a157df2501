"""First audio, gaps and load through real sockets, against `voicegate serve` as shipped, started here.

    python -m voicegate.bench.socket --model DIR [--json FILE] [--html FILE] [--budget-s 160] [--mode auto]
        [--scenarios alone:20j live:128:whole mixed:400 ... | --sweep] [--serve --kv-dtype float8 ...]

The clients are `voicegate bench`'s, in processes of their own. For a server that runs elsewhere: `voicegate bench URL`.
"""

import argparse
import asyncio
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from voicegate.bench import environment, results_file, servers
from voicegate.clients.bench import html_report, table
from voicegate.clients.bench.client_run import BenchFailed
from voicegate.clients.bench.plan import Record, Target
from voicegate.clients.bench.ramp import Objective
from voicegate.clients.bench.results import from_start
from voicegate.clients.bench.scenario import Kind, Scenario, parse
from voicegate.clients.bench.schedule import Settings
from voicegate.clients.bench.session import Bench

# README's table first: a budget cuts the end.
SCENARIOS: Final = (
    "alone:whole",
    "alone:20",
    "alone:40",
    "live:128:20",
    "live:128:whole",
    "live:400:20",
    "live:400:whole",
    "mixed:400",
    "mixed:500",
    "alone:20j",
    "live:400:20j",
    "live:128:20j",
    "alone:40j",
    "alone:10j",
    "live:500:whole",
)
# First audio against the number of streams, for a picture: by halves, so that a budget's end leaves few points and not
# half a line.
SWEEP: Final = tuple(
    f"live:{num}:{writer}" for num in (400, 128, 16, 256, 64, 320, 32, 192, 8) for writer in ("whole", "20")
)
ALONE_FLATTERY: Final = (
    "a stream alone speaks again 0.05 to 0.15 s after its last turn, so that nothing sleeps; it listens for 0.6 s"
)


def flattery(voices: Sequence[str], scenarios: Iterable[Scenario]) -> list[str]:
    """Where the figures were given more than a gateway in service is."""
    phrases = ["clients and server share one machine: the loopback is their network, its cores are both's"]
    phrases.append("connections are open before they are used, as agents' are")
    if "generated" in voices[0]:
        phrases.append("generated weights: speech ends with its text, and a text always takes the same time")
    if len(voices) == 1:
        phrases.append("all speak with one voice")
    if any(scenario.kind is Kind.ALONE for scenario in scenarios):
        phrases.append(ALONE_FLATTERY)
    return phrases


class Measured:
    """Results so far; saved after every scenario, so that a run that is killed leaves what it had."""

    def __init__(self, options: argparse.Namespace, start_s: float) -> None:
        self.report: dict[str, Any] = {
            "environment": environment.describe(),
            "serve": options.serve,
            "start_s": round(start_s, 1),
            "scenarios": {},
        }
        self._records: dict[str, Sequence[Record]] = {}
        self._json: Path | None = options.json
        self._html: Path | None = options.html

    def begin(self, voices: Sequence[str], settings: Settings, scenarios: Iterable[Scenario]) -> None:
        self.report |= settings.conditions() | {"flattery": flattery(voices, scenarios)}

    def add(self, scenario: Scenario, row: Mapping[str, Any] | None) -> None:
        """None: it was left out."""
        self.report["scenarios"][str(scenario)] = row
        self.report["sustained_mixed_streams"] = _sustained(self.report["scenarios"])
        results_file.save(self.report, self._json)
        if self._html is not None:
            self._html.parent.mkdir(parents=True, exist_ok=True)
            self._html.write_text(html_report.page(self.report, self._records), encoding="utf-8")

    def keep(self, scenario: Scenario, start_s: float, records: Sequence[Record]) -> None:
        self._records[str(scenario)] = [from_start(record, start_s) for record in records]


async def measure(options: argparse.Namespace, url: str, pid: int, measured: Measured) -> None:
    """Scenario after scenario; one that fails, or that the budget has no room for, is told and left out."""
    voices = _voices(url)
    settings = Settings(
        voices=voices,
        mode=options.mode,
        duration_s=options.duration_s,
        num_alone=options.num_alone,
        seed=options.seed,
    )
    measured.begin(voices, settings, options.scenarios)
    bench = Bench(Target(url), settings, server_pid=pid, on_records=measured.keep)
    end_s = time.monotonic() + options.budget_s
    print(table.heading(), flush=True)
    for scenario in options.scenarios:
        left_s, needed_s, row = end_s - time.monotonic(), bench.needed_s(scenario), None
        if needed_s > left_s:
            print(f"{scenario}: left out, it takes {needed_s:.0f} s and {left_s:.0f} s are left", flush=True)
        else:
            try:
                row = await bench.measure(scenario)
                print("\n".join(table.lines(str(scenario), row)), flush=True)
            except BenchFailed as error:
                print(f"{scenario}: {error}", flush=True)
        measured.add(scenario, row)


def _sustained(rows: Mapping[str, Any]) -> int | None:
    """The largest mixed load without a gap over 100 ms for 99.5 %, and with nobody lost."""
    objective = Objective(first_audio_p95_ms=math.inf, rtf_p99=math.inf)
    mixed = {parse(name): row for name, row in rows.items() if row is not None}
    held = [each.num_streams for each, row in mixed.items() if each.kind is Kind.MIXED and not objective.misses(row)]
    return max(held, default=None)


def _voices(url: str) -> list[str]:
    return [voice["name"] for voice in json.loads(servers.ask(servers.http_of(url, "/v1/voices")))["voices"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--html", type=Path, metavar="FILE", help="a page with charts")
    parser.add_argument("--log", type=Path, default=Path("build/bench-socket.log"), help="of the server")
    parser.add_argument("--scenarios", nargs="+", type=parse, default=[parse(text) for text in SCENARIOS])
    parser.add_argument(
        "--sweep",
        dest="scenarios",
        action="store_const",
        const=[parse(text) for text in ("alone:whole", "alone:20", *SWEEP)],
        help="first audio against the number of streams",
    )
    parser.add_argument("--mode", default="auto")
    parser.add_argument("--duration-s", type=float, default=10.0, help="arrivals within it are measured (default: 10)")
    parser.add_argument("--num-alone", type=int, default=20, help="sentences of one stream alone (default: 20)")
    parser.add_argument(
        "--budget-s", type=float, default=math.inf, help="of all scenarios; what has no room is left out"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="flags of `voicegate serve`; last")
    options = parser.parse_args()
    with servers.voicegate(options.model, options.serve, options.log) as (url, pid, start_s):
        print(f"ready after {start_s:.1f} s: {url}", flush=True)
        asyncio.run(measure(options, url, pid, Measured(options, start_s)))


if __name__ == "__main__":
    main()
