"""Keeps an engine process at a site: started, watched, replaced. It must not know what the process is asked to do."""

import asyncio
import dataclasses
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, Protocol

import structlog

from voicegate.engine.child_process import Backoff, start_module
from voicegate.engine.interface import EngineError, EngineEvent, EngineInfo, EngineStats
from voicegate.engine.load.progress import SILENT, Progress
from voicegate.engine.process.replica import Replica, ReplicaLost, StartRefused
from voicegate.engine.process.voices import SharedVoices
from voicegate.engine.pulse import PulseWatch

log = structlog.get_logger()

# Below the shortest time for which an engine may be said to hang (--engine-timeout-s, 1 s): see RoutingEngine.pulse.
_LOOK_S: Final = 0.5
# Patience with a process that loads: Python's lock may be held for long while weights come from a cold disk.
_START_PATIENCE_S: Final = 300.0
# From the end of a process's channel to its own; what takes longer is killed.
_EXIT_S: Final = 10.0
# Where processes write: our standard output is for what our user asked for.
_STDERR: Final = 2


class EngineProcess(Protocol):
    """A front's view of `subprocess.Popen`; tests have others."""

    pid: int

    def kill(self) -> None:
        """Nothing where it has ended."""

    def wait(self, timeout: float) -> int:
        """Its exit status. Blocks. Raises subprocess.TimeoutExpired."""


@dataclass(frozen=True, slots=True)
class Site:
    name: str
    launch: Callable[[socket.socket], EngineProcess]  # its end of the channel is its own copy; raises OSError; blocks
    greeting: bytes  # what the process needs to know


def launched(module: str, name: str, end: socket.socket, environment: Mapping[str, str]) -> EngineProcess:
    """`python -m MODULE NAME DESCRIPTOR`: the name is for people who look at processes. Raises OSError."""
    descriptor = end.fileno()
    return start_module(
        module,
        (name, str(descriptor)),
        environment=environment,
        pass_fds=(descriptor,),
        stdin=subprocess.DEVNULL,
        stdout=_STDERR,
    )


class Keeper:
    def __init__(
        self,
        site: Site,
        *,
        patience_s: float,
        publish: Callable[[EngineEvent], None],
        voices: SharedVoices,
        admit: Callable[[EngineInfo], str | None],
        progress: Progress,
    ) -> None:
        """A process that hangs for `patience_s` is killed. `publish` is told of all that the processes tell.

        `admit` is asked about each that is ready: what speaks against it, or None.
        """
        self.name = site.name
        self.num_looks = 0  # at processes, whether they hang
        self.max_utterances: int | None = None  # None: no process was ever ready here
        # Of the first process here: None once it serves, or why it does not.
        self.first_outcome: asyncio.Future[EngineError | None] = asyncio.get_running_loop().create_future()
        self._site = site
        self._patience_s = patience_s
        self._publish = publish
        self._voices = voices
        self._admit = admit
        self._progress = progress
        self._backoff = Backoff()
        self._closing = asyncio.Event()
        self._process: EngineProcess | None = None  # it loads, or serves
        self._hangs = _Hangs(_START_PATIENCE_S)  # that process
        self._serves_since_s: float | None = None
        # Counts of earlier processes, and the present one: in one, for a reader in another thread that adds them up.
        self._counted: tuple[EngineStats, Replica | None] = (EngineStats(), None)
        self._num_lost = 0
        self._num_utterances_lost = 0

    @property
    def serving(self) -> Replica | None:
        replica = self._counted[1]
        return None if replica is None or self._serves_since_s is None or replica.lost.is_set() else replica

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def keep(self) -> None:
        """A process at the site, until the end."""
        while not self._closing.is_set():
            served_s = await self._run_one()
            self._decide(ReplicaLost(f"{self.name}: the engine process has ended"))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self._backoff.delay_s(served_s))
        self._decide(ReplicaLost(f"{self.name}: no engine process is wanted any more"))

    def end(self) -> None:
        """Let the process that is here end, and start no other. One that loads cannot hear of it."""
        self._closing.set()
        if (serving := self.serving) is not None:
            serving.close()
        else:
            self.kill()

    def kill(self, reason: str | None = None) -> None:
        """`reason`: it hangs."""
        if self._process is not None:
            if reason is not None:
                log.error("engine_process_hangs", replica=self.name, pid=self.pid, reason=reason)
            self._process.kill()

    # --- one process ------------------------------------------------------------------------------------------

    async def _run_one(self) -> float:
        """From its start to its end. Returns for how long it served."""
        progress = SILENT if self.first_outcome.done() else self._progress
        replica = Replica(self.name, publish=self._publish, progress=progress)
        try:
            process = await self._launch(replica)
        except (OSError, RuntimeError) as error:  # no memory, no file descriptors, no thread
            log.error("engine_process_not_started", replica=self.name, reason=str(error))
            return 0.0
        self._process, self._hangs = process, _Hangs(_START_PATIENCE_S)
        self._counted = (self._counted[0], replica)
        if self._closing.is_set():
            process.kill()
        await self._watch(replica)
        self._process = None
        status = await _reaped(process)
        if not self._closing.is_set():
            fields = {"replica": self.name, "pid": process.pid, "exit_status": status}
            log.error("engine_process_lost", **fields, num_utterances=replica.num_failed)
        return self._note_loss(replica)

    async def _launch(self, replica: Replica) -> EngineProcess:
        """Raises OSError, RuntimeError."""
        ours, theirs = socket.socketpair()
        process = None
        try:
            with theirs:
                process = await asyncio.to_thread(self._site.launch, theirs)
            await replica.open(ours, self._site.greeting)
        except BaseException:
            ours.close()
            if process is not None:
                process.kill()
            raise
        return process

    async def _watch(self, replica: Replica) -> None:
        """Until it is lost. One that hangs is killed."""
        is_given_up = False
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            joining = tasks.create_task(self._join(replica))
            while not replica.lost.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(replica.lost.wait(), _LOOK_S)
                self.num_looks += 1
                trouble = self._hangs.look(replica, loop.time())
                if trouble is not None and not is_given_up and not replica.lost.is_set():
                    is_given_up = True
                    self.kill(trouble)
            joining.cancel()

    async def _join(self, replica: Replica) -> None:
        """Into service, once it is ready; what it lacks of the voices it is given while it serves."""
        try:
            info = await replica.ready
        except StartRefused as error:
            log.error("engine_process_refused", replica=self.name, reason=str(error))
            self._decide(error)
            return
        except ReplicaLost:
            return
        if (difference := self._admit(info)) is not None:
            log.error("engine_process_differs", replica=self.name, pid=self.pid, what=difference)
            self.kill()
            return
        self._voices.meet(replica, info)
        self._hangs = _Hangs(self._patience_s)
        if not replica.lost.is_set():
            self._serves_since_s, self.max_utterances = asyncio.get_running_loop().time(), info.max_utterances
            self._decide(None)
        log.info("engine_process_ready", replica=self.name, pid=self.pid)
        await self._voices.follow(replica)

    def _decide(self, outcome: EngineError | None) -> None:
        """The first time counts."""
        if not self.first_outcome.done():
            self.first_outcome.set_result(outcome)

    # --- what was counted here --------------------------------------------------------------------------------

    def _note_loss(self, replica: Replica) -> float:
        """For how long it served. What it counted goes on counting: a sum that falls would be taken for a new one."""
        since_s, self._serves_since_s = self._serves_since_s, None
        self._num_lost += 1
        self._num_utterances_lost += replica.num_failed
        self._counted = (_sum(self._counted[0], dataclasses.replace(replica.state.stats, gauges={})), None)
        return 0.0 if since_s is None else asyncio.get_running_loop().time() - since_s

    @property
    def stats(self) -> EngineStats:
        """Counts of all processes that were here, and state of the present one. From any thread."""
        (before, replica), serving = self._counted, self.serving
        told = EngineStats() if replica is None else replica.state.stats
        stats = _sum(before, told)
        lost = {"replicas_lost": self._num_lost, "replica_utterances_lost": self._num_utterances_lost}
        now = {
            "replica_ready": 0 if serving is None else 1,
            "replica_utterances": 0 if serving is None else serving.num_placed,
            "replica_room": 0 if serving is None else serving.room,
        }
        # A process's words on its own devices, where it has several, go on as they are.
        return dataclasses.replace(
            told, counters={**stats.counters, **lost}, gauges={**stats.gauges, **now}, batch_sizes=stats.batch_sizes
        )


class _Hangs:
    """Whether a process does."""

    def __init__(self, patience_s: float) -> None:
        # A state may be as old as the look before, and PulseWatch tells before its limit is over.
        self._silence = PulseWatch(patience_s + 2 * _LOOK_S, _LOOK_S)
        self._standstill = PulseWatch(patience_s + 2 * _LOOK_S, _LOOK_S)

    def look(self, replica: Replica, now_s: float) -> str | None:
        """Looks for faults of it; None: nothing yet."""
        is_silent = self._silence.look(replica.num_states, now_s)
        is_still = self._standstill.look(replica.state.pulse, now_s)
        return "it does not answer" if is_silent else "it gets nothing done" if is_still else None


async def _reaped(process: EngineProcess) -> int | None:
    """The exit status of one that was lost. One that goes on all the same is killed."""
    for _ in range(2):
        try:
            return await asyncio.to_thread(process.wait, _EXIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
    return None


def total(parts: Mapping[str, EngineStats]) -> EngineStats:
    """Total of several engines, by name, and of those that one of them consists of."""
    whole = EngineStats()
    engines, hangs = dict(parts), dict[str, bool]()
    for part in parts.values():
        whole = _sum(whole, part)
        engines |= part.engines
        hangs |= part.hangs
    return dataclasses.replace(whole, engines=engines, hangs=hangs)


def _sum(first: EngineStats, second: EngineStats) -> EngineStats:
    return EngineStats(
        _sums(first.counters, second.counters),
        _sums(first.gauges, second.gauges),
        {
            stage: [sum(pair) for pair in zip_longest(sizes, second.batch_sizes.get(stage, ()), fillvalue=0)]
            for stage, sizes in {**dict.fromkeys(second.batch_sizes, ()), **first.batch_sizes}.items()
        },
    )


def _sums(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in {**first, **second}}
