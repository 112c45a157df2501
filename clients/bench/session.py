"""A run of the bench: scenario after scenario against one server, within a budget of time."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final

from voicegate.clients.bench import judge
from voicegate.clients.bench.crew import Crew, carry_out
from voicegate.clients.bench.plan import Finished, Record, Target
from voicegate.clients.bench.scenario import Kind, Scenario
from voicegate.clients.bench.schedule import Schedule, Settings, schedule
from voicegate.clients.bench.usage import CpuSample, GpuMeter, cpu_report, sample_cpu

# A client process whose timers are later than this passes its own delay for the server's.
_MAX_LOOP_LAG_MS: Final = 10.0
# Starting processes and opening connections.
_START_S: Final = 3.0


class Bench:
    def __init__(
        self,
        target: Target,
        settings: Settings,
        *,
        server_pid: int | None = None,
        on_line: Callable[[str], None],
        on_records: Callable[[Scenario, float, Sequence[Record]], None] = lambda *_: None,
    ) -> None:
        """`server_pid`: of a server on this machine, whose CPU time is then told. `on_line`: progress for people."""
        self._target = target
        self._settings = settings
        self._server_pid = server_pid
        self._on_line = on_line
        self._on_records = on_records

    async def measure(self, scenario: Scenario) -> dict[str, Any]:
        """The scenario's row of a result file. Raises BenchFailed."""
        planned = schedule(scenario, self._settings)
        async with AsyncExitStack() as stack:
            gpu = await stack.enter_async_context(GpuMeter())
            watch = _Watch(self._server_pid, planned)
            num_told = 0

            def on_record(_: Record) -> None:
                nonlocal num_told
                num_told += 1

            crew = await carry_out(
                planned, self._target, scenario.num_streams, on_begin=watch.begin, on_record=on_record
            )
            await watch.end()
        self._on_records(scenario, crew.start_s, crew.records)
        begin_s, end_s = (crew.start_s + edge_s for edge_s in planned.window_s)
        last_s = max((record.ended_s for record in crew.records), default=begin_s)
        window_s = (begin_s, min(end_s, max(last_s, begin_s + 0.1)))
        row = judge.figures(crew.records, window_s=window_s)
        row["clients"] = _clients(crew.finished)
        row["server_cpu"] = watch.report()
        row["gpu"] = gpu.report(*window_s)
        self._learn(crew)
        self._on_line(line(scenario, row))
        return row

    async def measure_all(self, scenarios: Sequence[Scenario], *, budget_s: float | None = None) -> dict[str, Any]:
        """Rows by scenario; what the budget has no room for is named and left out."""
        began_s, rows = time.monotonic(), dict[str, Any]()
        for scenario in scenarios:
            left_s = float("inf") if budget_s is None else budget_s - (time.monotonic() - began_s)
            needed_s = _START_S + (0.0 if scenario.kind is Kind.ALONE else schedule(scenario, self._settings).stop_s)
            if needed_s > left_s:
                self._on_line(f"{scenario}: left out, it takes {needed_s:.0f} s and {left_s:.0f} s are left")
                rows[str(scenario)] = None
            else:
                rows[str(scenario)] = await self.measure(scenario)
        return rows

    def _learn(self, crew: Crew) -> None:
        measured = judge.seconds_per_letter(crew.records)
        if measured is not None:
            self._settings = replace(self._settings, seconds_per_letter=measured)


class _Watch:
    """The server's CPU time over a schedule's window."""

    def __init__(self, pid: int | None, planned: Schedule) -> None:
        self._pid = pid
        self._window_s = planned.window_s
        self._samples: list[CpuSample] = []
        self._sampling: asyncio.Task[None] | None = None

    def begin(self, start_s: float) -> None:
        if self._pid is not None:
            self._sampling = asyncio.create_task(self._sample(self._pid, start_s))

    async def end(self) -> None:
        if self._sampling is not None and self._pid is not None:
            self._sampling.cancel()
            await asyncio.gather(self._sampling, return_exceptions=True)
            if len(self._samples) == 1:  # over before its window was
                self._samples.append(sample_cpu(self._pid))

    def report(self) -> dict[str, Any] | None:
        if self._pid is None or len(self._samples) < 2:
            return None
        return cpu_report(self._pid, *self._samples)

    async def _sample(self, pid: int, start_s: float) -> None:
        for edge_s in self._window_s:
            await asyncio.sleep(max(start_s + edge_s - time.monotonic(), 0.0))
            self._samples.append(sample_cpu(pid))


def line(scenario: Scenario, row: dict[str, Any]) -> str:
    """A row for people."""
    first, outcomes = row["first_audio_ms"], row["outcomes"]
    if first is None:
        return f"{scenario}: nothing was heard; {outcomes} {row['messages']}"
    parts = [f"{scenario!s:<16} first audio {first['p50']:.0f} / {first['p95']:.0f} / {first['max']:.0f} ms"]
    parts.append(f"of {first['num']}, {row['live']:.0f} live, {row['audio_s_per_s']:.0f} audio-s/s")
    if row["c100"] is not None:
        parts.append(f"C50 {row['c50']:.1%} C100 {row['c100']:.1%}, longest gap {row['gap_ms']['longest']:.0f} ms")
    lost = {name: num for name, num in outcomes.items() if num and name not in ("done", "cancelled")}
    if lost:
        parts.append(f"{lost} {row['messages'][:1]}")
    if row["clients"]["are_late"]:
        parts.append("THE CLIENTS WERE LATE")
    return ", ".join(parts)


def _clients(finished: Sequence[Finished]) -> dict[str, Any]:
    p99_ms = max((each.loop_lag_p99_ms for each in finished), default=0.0)
    return {
        "num_processes": len(finished),
        "loop_lag_p99_ms": p99_ms,  # of the latest of them
        "loop_lag_max_ms": max((each.loop_lag_max_ms for each in finished), default=0.0),
        "cpu_s": round(sum(each.cpu_s for each in finished), 1),
        "num_late_connections": sum(each.num_late_connections for each in finished),
        "are_late": p99_ms > _MAX_LOOP_LAG_MS,
    }
