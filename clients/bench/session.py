"""A run of the bench: scenario after scenario against one server, within a budget of time."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final

from voicegate.clients.bench import judge
from voicegate.clients.bench.client_run import ClientRun, carry_out, clients_report
from voicegate.clients.bench.dialects import UNPACED
from voicegate.clients.bench.inquiry import ask
from voicegate.clients.bench.plan import Record, Target
from voicegate.clients.bench.scenario import Kind, Scenario
from voicegate.clients.bench.schedule import Schedule, Settings, schedule
from voicegate.clients.bench.stats import summary
from voicegate.clients.bench.usage import CpuSample, GpuMeter, cpu_report, sample_cpu

# Work that a server still has once all clients have left is in vain. Other servers than ours do not tell of it.
# For what was cancelled to end. Lower takes a busy server's last cancels for forgotten ones.
_PATIENCE_S: Final = 3.0
_POLL_S: Final = 0.05


async def left_behind(target: Target) -> dict[str, Any] | None:
    """Utterances and contexts that go on, and how long it took until there were none; None: it does not say."""
    begun_s = time.monotonic()
    while True:
        answer = await ask(target, "/v1/capacity")
        if answer is None or not {"utterances", "contexts"} <= answer.told.keys():
            return None
        waited_s = time.monotonic() - begun_s
        left = {name: answer.told[name] for name in ("utterances", "contexts")}
        if not any(left.values()) or waited_s > _PATIENCE_S:
            return {**left, "after_ms": round(waited_s * 1000)}
        await asyncio.sleep(_POLL_S)


# Starting processes and opening connections.
_START_S: Final = 3.0
_SHOW_S: Final = 0.25


class Bench:
    def __init__(
        self,
        target: Target,
        settings: Settings,
        *,
        server_pid: int | None = None,
        on_share: Callable[[str, float], None] = lambda *_: None,
        on_records: Callable[[Scenario, float, Sequence[Record]], None] = lambda *_: None,
    ) -> None:
        """`server_pid`: of a server on this machine, whose CPU time is then told. `on_share`: how far a scenario is."""
        self._target = target
        self._settings = settings
        self._server_pid = server_pid
        self._on_share = on_share
        self._on_records = on_records

    async def measure(self, scenario: Scenario) -> dict[str, Any]:
        """The scenario's row of a result file. Raises BenchFailed."""
        planned = schedule(scenario, self._settings)
        async with AsyncExitStack() as stack:
            gpu = GpuMeter()
            if self._server_pid is not None:  # else it may be another machine's
                await stack.enter_async_context(gpu)
            watch = await stack.enter_async_context(_Watch(self._server_pid, planned))
            showing: list[asyncio.Task[None]] = []

            def begin(start_s: float) -> None:
                watch.begin(start_s)
                showing.append(asyncio.create_task(self._show(scenario, planned, start_s)))

            try:
                client_run = await carry_out(planned, self._target, scenario.num_streams, on_begin=begin)
            finally:
                for task in showing:
                    task.cancel()
                self._on_share(str(scenario), 1.0)
        self._on_records(scenario, client_run.start_s, client_run.records)
        window_s = client_run.window_s(planned)
        row = judge.figures(client_run.records, window_s=window_s)
        row["seconds_per_letter"] = round(self._settings.seconds_per_letter, 4)  # that its turns were expected to take
        row["clients"] = clients_report(client_run.finished)
        row["may_be_paced"] = scenario.kind is Kind.CLOSED and self._target.dialect not in UNPACED
        row["connect_ms"] = summary([each_ms for each in client_run.finished for each_ms in each.connects_ms])
        row["left_behind"] = await left_behind(self._target)
        row["server_cpu"] = watch.report()
        row["gpu"] = gpu.report(*window_s)
        self._learn(client_run)
        return row

    async def _show(self, scenario: Scenario, planned: Schedule, start_s: float) -> None:
        while True:
            self._on_share(str(scenario), min(max((time.monotonic() - start_s) / planned.stop_s, 0.0), 0.99))
            await asyncio.sleep(_SHOW_S)

    def needed_s(self, scenario: Scenario) -> float:
        """At most; sentences of one stream alone take as long as they take, within their limit."""
        return _START_S + (0.0 if scenario.kind is Kind.ALONE else schedule(scenario, self._settings).stop_s)

    def _learn(self, client_run: ClientRun) -> None:
        measured = judge.seconds_per_letter(client_run.records)
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

    async def __aenter__(self) -> "_Watch":
        return self

    async def __aexit__(self, *_: object) -> None:
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
