"""The engine processes of a front: started, watched, replaced. It must not know what they are asked to do."""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import structlog

from voicegate.engine.interface import EngineError, EngineEvent, EngineInfo, EngineStats
from voicegate.engine.load.progress import SILENT, Progress
from voicegate.engine.process.all_progress import AllProgress
from voicegate.engine.process.replica import Replica, ReplicaLost, StartRefused
from voicegate.engine.process.seat import Seat
from voicegate.engine.process.shared_voices import SharedVoices
from voicegate.engine.process.site import Site

log = structlog.get_logger()

# Below the shortest time for which an engine may be said to hang (--engine-timeout-s, 1 s): see RoutingEngine.pulse.
_LOOK_S: Final = 0.5
# Of what processes tell: each has room of its own, chooses its flow and its vocoder by its own measurement, and finds
# the voices that are there when it starts, whose first may be the default. The front names the one that it began with.
_MAY_DIFFER: Final = ("voices", "default_voice", "max_utterances", "flow", "vocoder")
# From the end of a process's channel to its own; what takes longer is killed.
_EXIT_S: Final = 10.0
# For the processes to fail what they speak, and end. Higher -> the end waits longer for one that hangs.
_CLOSE_S: Final = 10.0


class Crew:
    def __init__(
        self,
        sites: Sequence[Site],
        *,
        patience_s: float,
        voices: SharedVoices,
        publish: Callable[[EngineEvent], None],
        on_progress: Progress,
    ) -> None:
        """One that hangs for `patience_s` is killed. `publish` is told of all that the processes tell."""
        self.seats = [Seat(site) for site in sites]
        self.num_looks = 0  # at processes, whether they hang
        self.info: EngineInfo | None = None  # of the first that was ready; its voices and room are not asked for here
        self._patience_looks = max(round(patience_s / _LOOK_S), 1)
        self._voices = voices
        self._publish = publish
        self._progress = AllProgress(on_progress)
        self._closing = asyncio.Event()

    @property
    def serving(self) -> list[Replica]:
        return [replica for seat in self.seats if (replica := seat.serving) is not None]

    @property
    def max_utterances(self) -> int:
        """Of all seats; where no process was ready yet it is taken to be as the first."""
        first = 0 if self.info is None else self.info.max_utterances
        return sum(seat.max_utterances or first for seat in self.seats)

    @property
    def stats(self) -> Mapping[str, EngineStats]:
        return {seat.name: seat.stats for seat in self.seats}

    async def run(self, started: "asyncio.Future[EngineError | None]") -> None:
        """Until `end`. `started` is told when all have had their chance: why none serves, or None."""
        try:
            async with asyncio.TaskGroup() as tasks:
                error = await self._start_all(tasks)
                if not started.done():
                    started.set_result(error)
        finally:
            for seat in self.seats:
                if seat.replica is not None:
                    seat.replica.kill()

    async def end(self, running: "asyncio.Task[None]") -> None:
        """`running` is the task of `run`. Returns when no process is left."""
        self._closing.set()
        for seat in self.seats:
            if seat.replica is not None:
                seat.replica.end()
        await asyncio.wait({running}, timeout=_CLOSE_S)
        for seat in self.seats:
            if seat.replica is not None:
                log.error("engine_process_hangs", replica=seat.name, pid=seat.replica.pid, reason="it does not end")
                seat.replica.kill()
        await running

    async def _start_all(self, tasks: asyncio.TaskGroup) -> EngineError | None:
        """The first alone: what it compiles the others find. What does not fit is told at once, of any of them.

        One that merely dies is left out, and tried again. Returns why none serves.
        """
        waiting = list(self.seats)
        while waiting and not self.serving:
            seat = waiting.pop(0)
            tasks.create_task(self._tend(seat))
            if isinstance(error := await seat.first_outcome, StartRefused):
                return error
        for seat in waiting:
            tasks.create_task(self._tend(seat))
        for seat in waiting:
            if isinstance(error := await seat.first_outcome, StartRefused):
                return error
        return None if self.serving else EngineError("no engine process has started; see the log, and what they wrote")

    async def _tend(self, seat: Seat) -> None:
        """Keep a process in the seat until the end."""
        while not self._closing.is_set():
            replica = await self._launch(seat)
            served_s = 0.0 if replica is None else await self._accompany(seat, replica)
            seat.decide(ReplicaLost(f"{seat.name}: the engine process has ended"))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), seat.backoff.delay_s(served_s))
        seat.decide(ReplicaLost(f"{seat.name}: no engine process is wanted any more"))

    async def _launch(self, seat: Seat) -> Replica | None:
        progress = SILENT if seat.first_outcome.done() else self._progress.of(seat.name)
        replica = Replica(seat.site, patience_looks=self._patience_looks, publish=self._publish, progress=progress)
        try:
            await replica.launch()
        except (OSError, RuntimeError) as error:  # no memory, no file descriptors, no thread
            log.error("engine_process_not_started", replica=seat.name, reason=str(error))
            return None
        return replica

    async def _accompany(self, seat: Seat, replica: Replica) -> float:
        """One process from its start to its end: for how long it served."""
        seat.seat(replica)
        if self._closing.is_set():
            replica.kill()
        async with asyncio.TaskGroup() as tasks:
            joining = tasks.create_task(self._join(seat, replica))
            while not replica.lost.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(replica.lost.wait(), _LOOK_S)
                self.num_looks += 1
                replica.look()
            joining.cancel()
        status = await replica.reap(_EXIT_S)
        served_s = seat.note_loss(replica, asyncio.get_running_loop().time())
        if not self._closing.is_set():
            num_utterances = replica.num_failed
            fields = {"replica": seat.name, "pid": replica.pid, "exit_status": status}
            log.error("engine_process_lost", **fields, num_utterances=num_utterances)
        return served_s

    async def _join(self, seat: Seat, replica: Replica) -> None:
        """Into service, once it is ready; what it lacks of the voices it is given while it serves."""
        try:
            info = await replica.ready
        except StartRefused as error:
            log.error("engine_process_refused", replica=seat.name, reason=str(error))
            seat.decide(error)
            return
        except ReplicaLost:
            return
        if self.info is None:
            self.info = info
            self._voices.begin(info)
        elif (difference := _difference(info, self.info)) is not None:
            log.error("engine_process_differs", replica=seat.name, pid=replica.pid, what=difference)
            replica.kill()
            return
        self._voices.meet(replica, info)
        seat.admit(replica, info, asyncio.get_running_loop().time())
        log.info("engine_process_ready", replica=seat.name, pid=replica.pid)
        await self._voices.follow(replica)


def _difference(info: EngineInfo, first: EngineInfo) -> str | None:
    """What of a process is not as of the first: its files may have been exchanged meanwhile."""
    for field in dataclasses.fields(EngineInfo):
        ours, theirs = getattr(first, field.name), getattr(info, field.name)
        if field.name not in _MAY_DIFFER and ours != theirs:
            return f"{field.name} is {theirs!r}, and was {ours!r}"
    return None
