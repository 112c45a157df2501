"""Worker processes for one schedule: started, given their visits, begun at one moment, heard to their end."""

import asyncio
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from voicegate.clients.bench.plan import Began, Broke, Finished, Plan, Ready, Record, Report, Stop, Target, Told, Visit
from voicegate.clients.bench.schedule import Schedule

# Streams of one process at a time. Higher -> its loop is late, and its lateness passes for the server's.
_STREAMS_PER_WORKER: Final = 40
# Connections opened ahead, beside the streams that are meant to be live.
_SPARE_CONNECTIONS: Final = 1.3
# Behind the schedule's own end, before a worker is given up.
_GRACE_S: Final = 20.0
# Longest line of a worker: a plan's answer is short, a record of a minute's audio about 100 kB.
_LINE_BYTES: Final = 1 << 24
_MODULE: Final = "voicegate.clients.bench.worker"
# A client process whose timers are later than this passes its own delay for the server's.
_MAX_LOOP_LAG_MS: Final = 10.0


class BenchFailed(Exception):
    """A measurement could not be made; the message says why."""


@dataclass(slots=True)
class ClientRun:
    """Records of the clients of one scenario, and their own state."""

    start_s: float
    records: list[Record] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    num_awaited: int = 0  # visits that began before the window's end and have turns to come

    @classmethod
    def awaiting(cls, schedule: Schedule, start_s: float) -> "ClientRun":
        return cls(start_s, num_awaited=sum(visit.due_s <= schedule.window_s[1] for visit in schedule.visits))

    def note(self, record: Record, schedule: Schedule) -> bool:
        """True: it was the last turn of the last who began in time, and the others are of no interest."""
        self.records.append(record)
        visit = schedule.visits[record.visit]
        is_over = visit.due_s <= schedule.window_s[1] and record.turn + 1 == len(visit.turns)
        self.num_awaited -= is_over
        return is_over and self.num_awaited == 0

    def window_s(self, schedule: Schedule) -> tuple[float, float]:
        """On the records' clock; it ends with the last of them, if that is sooner."""
        begin_s, end_s = (self.start_s + edge_s for edge_s in schedule.window_s)
        last_s = max((record.ended_s for record in self.records), default=begin_s)
        return begin_s, min(end_s, max(last_s, begin_s + 0.1))


@dataclass(slots=True)
class _Worker:
    process: asyncio.subprocess.Process
    plan: Plan

    async def say(self, message: msgspec.Struct) -> None:
        """To one that has gone nothing is said: `hear` tells."""
        assert self.process.stdin is not None
        with suppress(ConnectionError):
            self.process.stdin.write(msgspec.json.encode(message) + b"\n")
            await self.process.stdin.drain()

    async def hear(self) -> Report:
        """Raises BenchFailed where it has gone, or cannot go on."""
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line:
            raise BenchFailed(f"a client process ended with status {await self.process.wait()}")
        report: Report = msgspec.json.decode(line, type=Report)
        if isinstance(report, Broke):
            raise BenchFailed(report.message)
        return report


async def carry_out(
    schedule: Schedule,
    target: Target,
    num_streams: int,
    *,
    on_begin: Callable[[float], None],
) -> ClientRun:
    """`num_streams`: meant to be live at once. `on_begin` is told the start. Raises BenchFailed."""
    num_workers = math.ceil(num_streams / _STREAMS_PER_WORKER)
    workers: list[_Worker] = []
    try:
        for plan in _plans(schedule, target, num_streams, num_workers):
            workers.append(await _start(plan))  # noqa: PERF401 - those that run are to be ended whatever happens
        await asyncio.gather(*(_ready(worker) for worker in workers))
        client_run = ClientRun.awaiting(schedule, time.monotonic() + 0.2)
        on_begin(client_run.start_s)
        async with asyncio.timeout(schedule.stop_s + _GRACE_S):
            await asyncio.gather(*(_follow(number, workers, client_run, schedule) for number in range(num_workers)))
    except TimeoutError as error:
        raise BenchFailed("the client processes did not end in time") from error
    finally:
        for worker in workers:
            if worker.process.returncode is None:
                worker.process.kill()
            await worker.process.wait()
    return client_run


def _plans(schedule: Schedule, target: Target, num_streams: int, num_workers: int) -> Sequence[Plan]:
    """Visits in turn, so that each worker has its share at any time."""
    shares: list[list[Visit]] = [[] for _ in range(num_workers)]
    for index, visit in enumerate(schedule.visits):
        shares[index % num_workers].append(visit)
    num_ahead = math.ceil(num_streams * _SPARE_CONNECTIONS / num_workers)
    return [
        Plan(target, tuple(share), min(num_ahead, len(share)), schedule.last_start_s, schedule.stop_s)
        for share in shares
    ]


async def _start(plan: Plan) -> _Worker:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        # A terminal's Ctrl-C is for who reads its reports. The end of what it reads ends it.
        *(sys.executable, "-m", _MODULE),
        stdin=pipe,
        stdout=pipe,
        limit=_LINE_BYTES,
        start_new_session=True,
    )
    worker = _Worker(process, plan)
    await worker.say(plan)
    return worker


async def _ready(worker: _Worker) -> None:
    report = await worker.hear()
    assert isinstance(report, Ready), "a worker begins with `ready`"


async def _follow(number: int, workers: Sequence[_Worker], client_run: ClientRun, schedule: Schedule) -> None:
    """The load goes on until everybody who began in time has been heard; then all are stopped."""
    worker = workers[number]
    await worker.say(Began(client_run.start_s))
    while True:
        match await worker.hear():
            case Told(record):
                # A worker counts its own visits; those of the schedule were dealt out in turn.
                counted = msgspec.structs.replace(record, visit=record.visit * len(workers) + number)
                if client_run.note(counted, schedule):
                    await asyncio.gather(*(each.say(Stop()) for each in workers))
            case Finished() as finished:
                client_run.finished.append(finished)
                return
            case _:
                pass


def clients_report(finished: Sequence[Finished]) -> dict[str, Any]:
    p99_ms = max((each.loop_lag_p99_ms for each in finished), default=0.0)
    return {
        "num_processes": len(finished),
        "loop_lag_p99_ms": p99_ms,  # of the latest of them
        "loop_lag_max_ms": max((each.loop_lag_max_ms for each in finished), default=0.0),
        "cpu_s": round(sum(each.cpu_s for each in finished), 1),
        "num_late_connections": sum(each.num_late_connections for each in finished),
        "are_late": p99_ms > _MAX_LOOP_LAG_MS,
    }
