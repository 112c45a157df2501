"""Live streams with and without a full queue of jobs beside them, against `voicegate serve` as shipped, started here.

    python -m voicegate.bench.jobs --model DIR [--loads live:300:20 live:300:whole] [--rounds 2] [--json FILE]
        [--budget-s 150] [--serve --kv-dtype float8 ...]

First jobs alone. Then each load goes on without a break, while jobs go and come: a window without them and one with
them, a round. A turn counts for the window in which it begins. The clients are `voicegate bench`'s.
"""

import argparse
import asyncio
import json
import math
import re
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from voicegate.bench import environment, results_file, servers
from voicegate.clients.bench import judge, table
from voicegate.clients.bench.client_run import BenchFailed, carry_out, clients_report
from voicegate.clients.bench.plan import Target
from voicegate.clients.bench.scenario import Scenario, parse
from voicegate.clients.bench.schedule import Schedule, Settings, schedule
from voicegate.clients.bench.sentences import ENGLISH
from voicegate.clients.bench.usage import CpuSample, GpuMeter, cpu_report, sample_cpu
from voicegate.engine.units import TOKEN_RATE_HZ
from voicegate.gateway.server.jobs.cutting import PART_BYTES

LOADS: Final = ("live:300:20", "live:300:whole")
_PARTS_AT_ONCE: Final = 128  # that a server speaks: docs/jobs.md
_STRIDE: Final = 79  # about the golden section of those
_QUEUE_BYTES: Final = 256 * 1024
# After jobs came or went. Lower -> a window has the burst of first parts, which a queue has only once.
_SETTLE_S: Final = 3.0
# Between a window and the next change of jobs. Lower -> its last turns have their first seconds beside the other.
_GUARD_S: Final = 2.0
# Starting processes and opening connections.
_START_S: Final = 3.0
_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    metrics_url: str
    pid: int

    def http(self, path: str, *, method: str = "GET", body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(servers.http_of(self.url, path), data, method=method)
        return json.loads(servers.ask(request, timeout_s=_TIMEOUT_S))


@dataclass(frozen=True, slots=True)
class Reading:
    """Work done by a moment. Rows of the LLM's batches are speech tokens, of all streams."""

    at_s: float
    tokens: float
    finished_s: float  # audio of whole parts of jobs
    cpu: CpuSample


def read(server: Server) -> Reading:
    told = servers.ask(server.metrics_url, timeout_s=_TIMEOUT_S).decode()

    def value(name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", told, re.MULTILINE)
        assert found is not None, name
        return float(found[1])

    tokens, finished_s = value('voicegate_batch_rows_sum{stage="llm"}'), value("voicegate_job_audio_seconds_total")
    return Reading(time.monotonic(), tokens, finished_s, sample_cpu(server.pid))


def first_lengths(whole: int) -> Iterator[int]:
    """So long the first parts of a queue are, up to a `whole` one.

    Parts then end and begin at all times, as in a queue that has run for long; else all would end at once. Lengths far
    from each other come first: a small server speaks few at once.
    """
    for number in range(_PARTS_AT_ONCE):
        yield max((number * _STRIDE % _PARTS_AT_ONCE + 1) * whole // _PARTS_AT_ONCE, 12)


def texts(num_bytes: int) -> list[str]:
    """A long text, and before it texts of all lengths up to a part's."""
    page = "\n\n".join(islice(cycle(ENGLISH.paragraphs), math.ceil(num_bytes / len(ENGLISH.paragraphs[0]))))
    return [*(page[:length] for length in first_lengths(PART_BYTES)), page[:num_bytes]]


@dataclass(slots=True)
class Queue:
    server: Server
    num_bytes: int
    fill_s: float = 0.0  # that it took: the text is cut before the request is answered
    _job: str = ""

    async def fill(self) -> None:
        begun_s, body = time.monotonic(), {"input": texts(self.num_bytes), "response_format": "opus"}
        told = await asyncio.to_thread(self.server.http, "/v1/audio/jobs", method="POST", body=body)
        self._job, self.fill_s = f"/v1/audio/jobs/{told['id']}", time.monotonic() - begun_s

    async def num_waiting(self) -> int:
        """Parts that nobody makes yet, at least."""
        told = await asyncio.to_thread(self.server.http, self._job)
        return max(int(told["parts"]) - int(told["parts_done"]) - _PARTS_AT_ONCE, 0)

    async def empty(self) -> None:
        await asyncio.to_thread(self.server.http, self._job, method="DELETE")


@dataclass(frozen=True, slots=True)
class Window:
    begin: Reading
    end: Reading
    waiting_parts: int | None  # at its end; None: there were no jobs

    def figures(self, server: Server, gpu: GpuMeter, live_audio_s_per_s: float) -> dict[str, Any]:
        seconds = self.end.at_s - self.begin.at_s
        made = (self.end.tokens - self.begin.tokens) / TOKEN_RATE_HZ / seconds
        has_jobs = self.waiting_parts is not None
        return {
            "window_s": round(seconds, 1),
            "made_audio_s_per_s": round(made, 1),  # for listeners and jobs, by tokens
            "job_audio_s_per_s": round(made - live_audio_s_per_s, 1) if has_jobs else None,
            "finished_audio_s_per_s": round((self.end.finished_s - self.begin.finished_s) / seconds, 1),
            "waiting_parts": self.waiting_parts,
            "gpu": gpu.report(self.begin.at_s, self.end.at_s),
            "server_cpu": cpu_report(server.pid, self.begin.cpu, self.end.cpu),
        }


@dataclass(slots=True)
class Measured:
    """Windows so far; saved after each load, so that a run that is killed leaves what it had."""

    report: dict[str, Any]
    path: Path | None
    windows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, load: str | None, has_jobs: bool, row: dict[str, Any]) -> None:
        self.windows.append({"load": load, "has_jobs": has_jobs, **row})
        if load is not None:
            print("\n".join(table.lines(f"{'+ ' if has_jobs else '  '}{load}", row)))
        rate, gpu = row["job_audio_s_per_s"], row["gpu"]
        jobs = "no jobs" if rate is None else f"jobs {rate} audio-s/s, {row['waiting_parts']} parts wait"
        print(f"    {jobs}; all {row['made_audio_s_per_s']} audio-s/s; GPU {gpu}", flush=True)
        if row["waiting_parts"] == 0:
            print("  ! the queue ran empty: raise --queue-bytes", flush=True)
        results_file.save(self.report | {"windows": self.windows}, self.path)


async def window(queue: Queue, duration_s: float, *, has_jobs: bool) -> Window:
    if has_jobs:
        await queue.fill()
    try:
        await asyncio.sleep(_SETTLE_S)
        begin = await asyncio.to_thread(read, queue.server)
        await asyncio.sleep(duration_s)
        end = await asyncio.to_thread(read, queue.server)
        waiting = await queue.num_waiting() if has_jobs else None
        await asyncio.sleep(_GUARD_S)
    finally:
        if has_jobs:
            await queue.empty()
    return Window(begin, end, waiting)


async def jobs_alone(queue: Queue, duration_s: float, measured: Measured) -> None:
    async with GpuMeter() as gpu:
        found = await window(queue, duration_s, has_jobs=True)
    measured.add(None, True, found.figures(queue.server, gpu, 0.0))


async def beside(scenario: Scenario, planned: Schedule, duration_s: float, queue: Queue, measured: Measured) -> None:
    """One load, while jobs go and come. Raises BenchFailed."""
    windows: list[tuple[bool, Window]] = []

    async def alternate(start_s: float) -> None:
        await asyncio.sleep(start_s + planned.window_s[0] - time.monotonic())
        needed_s = _SETTLE_S + duration_s + _GUARD_S
        while time.monotonic() + needed_s <= start_s + planned.window_s[1]:
            has_jobs = len(windows) % 2 == 1
            windows.append((has_jobs, await window(queue, duration_s, has_jobs=has_jobs)))

    tasks: list[asyncio.Task[None]] = []
    try:
        async with GpuMeter() as gpu:
            run = await carry_out(
                planned,
                Target(queue.server.url),
                scenario.num_streams,
                on_begin=lambda start_s: tasks.append(asyncio.create_task(alternate(start_s))),
            )
            await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for has_jobs, each in windows:
        row = judge.figures(run.records, window_s=(each.begin.at_s, each.end.at_s))
        row["clients"] = clients_report(run.finished)
        measured.add(str(scenario), has_jobs, row | each.figures(queue.server, gpu, row["audio_s_per_s"]))


def fitting(scenario: Scenario, options: argparse.Namespace, fill_s: float, left_s: float) -> Schedule | None:
    """As many rounds of it as asked for, or fewer that have the time; None: none has."""
    round_s = 2 * (_SETTLE_S + options.duration_s + _GUARD_S) + 1.5 * fill_s + 1.0
    for num_rounds in range(options.rounds, 0, -1):
        planned = schedule(scenario, replace(options.settings, duration_s=num_rounds * round_s))
        if _START_S + planned.stop_s <= left_s:
            return planned
    return None


async def measure(options: argparse.Namespace, server: Server, measured: Measured) -> None:
    """Load after load; one that fails, or that the budget has no room for, is told and left out."""
    end_s = time.monotonic() + options.budget_s
    queue = Queue(server, options.queue_bytes)
    await jobs_alone(queue, options.duration_s, measured)
    for scenario in options.loads:
        planned = fitting(scenario, options, queue.fill_s, end_s - time.monotonic())
        if planned is None:
            print(f"{scenario}: left out, there is no time for a round", flush=True)
            continue
        try:
            await beside(scenario, planned, options.duration_s, queue, measured)
        except BenchFailed as error:
            print(f"{scenario}: {error}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--log", type=Path, default=Path("build/bench-jobs.log"), help="of the server")
    parser.add_argument("--loads", nargs="+", type=parse, default=[parse(text) for text in LOADS])
    parser.add_argument("--rounds", type=int, default=2, help="windows without jobs, and with them (default: 2)")
    parser.add_argument("--duration-s", type=float, default=7.0, help="of a window (default: 7)")
    parser.add_argument("--queue-bytes", type=int, default=_QUEUE_BYTES, help="text of jobs for one window")
    parser.add_argument("--budget-s", type=float, default=math.inf, help="of all; what has no room is left out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="flags of `voicegate serve`; last")
    options = parser.parse_args(arguments)
    metrics_port = servers.free_port()
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--jobs-dir", folder, "--metrics-port", str(metrics_port), *options.serve]
        with servers.voicegate(options.model, flags, options.log) as (url, pid, start_s):
            print(f"ready after {start_s:.1f} s: {url}", flush=True)
            server = Server(url, f"http://127.0.0.1:{metrics_port}/metrics", pid)
            voices = [voice["name"] for voice in server.http("/v1/voices")["voices"]]
            options.settings = Settings(voices=voices, seed=options.seed)
            report = {
                "environment": environment.describe(),
                "serve": options.serve,
                "start_s": round(start_s, 1),
                **options.settings.conditions(),
                "seconds_per_letter": options.settings.seconds_per_letter,
                "duration_s": options.duration_s,
                "queue_bytes": options.queue_bytes,
            }
            asyncio.run(measure(options, server, Measured(report, options.json)))


if __name__ == "__main__":
    main()
