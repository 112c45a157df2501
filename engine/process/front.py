"""Several engine processes as one engine: where new requests go, and what becomes of those whose process is lost.

What it gives back is what the processes tell; it must not know what an engine is made of, nor torch.
"""

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog

from voicegate.engine.audio.packets import pre_skip_48k
from voicegate.engine.checks import check_new_voice, check_removable
from voicegate.engine.interface import (
    AudioFormat,
    Cancelled,
    Done,
    EngineError,
    EngineEvent,
    EngineInfo,
    EngineStats,
    EngineStopped,
    Failed,
    ListenerReport,
    NewVoice,
    Overloaded,
    UtteranceId,
    UtteranceRequest,
    VoiceInfo,
    VoiceOverloaded,
)
from voicegate.engine.load.progress import SILENT, Named, Progress
from voicegate.engine.named_places import NamedPlaces
from voicegate.engine.placement import choose
from voicegate.engine.process.keeper import Keeper, Site, total
from voicegate.engine.process.replica import Placed, Replica, StartRefused, settle
from voicegate.engine.process.voices import SharedVoices
from voicegate.engine.process.wire import Command
from voicegate.engine.requests import check_request

log = structlog.get_logger()

# Fields of a process that may differ: each has room of its own, chooses its flow and its vocoder by its own
# measurement, and finds the voices that are there when it starts, whose first may be the default. The front names the
# one that it began with.
_MAY_DIFFER: Final = ("voices", "default_voice", "max_utterances", "flow", "vocoder")
# For the processes to fail what they speak, and end. Higher -> the end waits longer for one that hangs.
_CLOSE_S: Final = 10.0


class RoutingEngine:
    """`engine.interface.Engine` over processes, one in each of `sites`.

    A process that is lost fails its own utterances and is replaced; one that hangs for `patience_s` is killed.
    """

    def __init__(self, sites: Sequence[Site], *, patience_s: float = 10.0, on_progress: Progress = SILENT) -> None:
        self._sites = sites
        self._patience_s = patience_s
        self._on_progress = on_progress
        self._voices = SharedVoices()
        self._voice_changes = NamedPlaces()
        self._keepers: list[Keeper] = []
        self._live: dict[UtteranceId, Placed] = {}
        self._first_info: EngineInfo | None = None  # of the process that was ready first; its voices are not asked for
        self._info: EngineInfo | None = None  # as it was told last
        self._events: asyncio.Queue[EngineEvent | None] = asyncio.Queue()
        self._stop_reason: str | None = "the engine has not been started"
        self._running: asyncio.Task[None] | None = None
        self._max_text_chars = 0  # of all, once they have started: asked for with each word

    # --- the seam ---------------------------------------------------------------------------------------------

    @property
    def info(self) -> EngineInfo:
        first = self._first_info
        if first is None:
            raise EngineStopped(self._stop_reason or "the engine is still starting")
        voices, clones = tuple(self._voices.table.names.values()), self._voices.table.clones
        # Where no process was ready yet it is taken to be as the first.
        max_utterances = sum(keeper.max_utterances or first.max_utterances for keeper in self._keepers)
        known = self._info  # asked for with each message
        if known is None or (known.voices, known.clones, known.max_utterances) != (voices, clones, max_utterances):
            known = dataclasses.replace(first, voices=voices, clones=clones, max_utterances=max_utterances)
            self._info = known
        return known

    @property
    def unready_reason(self) -> str | None:
        if self._stop_reason is not None:
            return self._stop_reason
        reasons = dict.fromkeys(replica.state.unready_reason for replica in self._serving)
        if None in reasons:
            return None
        return "; ".join(filter(None, reasons)) or "no engine process is running; they are being replaced"

    @property
    def room(self) -> int:
        return 0 if self._stop_reason is not None else sum(replica.room for replica in self._serving)

    @property
    def pulse(self) -> int | None:
        """Processes that hang are looked for here, and killed: while that goes on, the whole does not hang."""
        if self._stop_reason is not None or not self._live:
            return None
        return sum(keeper.num_looks for keeper in self._keepers)

    def stats(self) -> EngineStats:
        """The sums of all, and each site's own: `replicas_lost`, `replica_ready` and others beside them."""
        return total({keeper.name: keeper.stats for keeper in self._keepers})

    async def start(self) -> None:
        # Loads libopus, for which a program is run: the first utterance's request would have all sockets wait for it.
        await asyncio.to_thread(pre_skip_48k, AudioFormat())
        loop = asyncio.get_running_loop()
        self._keepers = [
            Keeper(
                site,
                patience_s=self._patience_s,
                publish=self._publish,
                voices=self._voices,
                admit=self._admit,
                progress=Named(site.name, self._on_progress),
            )
            for site in self._sites
        ]
        started: asyncio.Future[EngineError | None] = loop.create_future()
        self._running = loop.create_task(self._run(started))
        error = await started
        if error is not None:
            await self.close()
            raise error
        if self._running.done():  # it died in the same moment
            raise EngineStopped(self._stop_reason or "the engine died; see the log")
        self._max_text_chars = self.info.max_text_chars
        self._stop_reason = None

    async def close(self) -> None:
        """Returns when no process is left."""
        running, self._running = self._running, None
        if running is None:
            return
        self._stop_reason = "the engine was closed"
        for keeper in self._keepers:
            keeper.end()
        await asyncio.wait({running}, timeout=_CLOSE_S)
        for keeper in self._keepers:
            keeper.kill("it does not end")
        await running
        self._stop(self._stop_reason)

    def submit(self, request: UtteranceRequest) -> None:
        info = self._running_info()
        if request.utterance_id in self._live:
            raise EngineError(f"utterance {request.utterance_id!r} is already running")
        check_request(request, info)
        if (reason := self.unready_reason) is not None:
            raise Overloaded(f"{reason}; try again shortly")
        able = [replica for replica in self._serving if request.voice in replica.voices]
        chosen = choose((number, replica.load) for number, replica in enumerate(able))
        if chosen is None:
            if self.room:
                raise VoiceOverloaded(
                    f"no engine process that has the voice {request.voice} has room; try again shortly"
                )
            raise Overloaded("no engine process has room; try again shortly")
        self._live[request.utterance_id] = able[chosen].submit(request)

    def readmit(self, utterance_id: UtteranceId) -> None:
        if (placed := self._live.get(utterance_id)) is not None:
            placed.replica.readmit(placed)

    def push_text(self, utterance_id: UtteranceId, text: str) -> None:
        placed = self._live.get(utterance_id)
        # Text that waits for the process is bounded by an utterance's limits.
        if placed is not None and text and placed.num_chars <= self._max_text_chars:
            placed.replica.push_text(placed, text)

    def flush_text(self, utterance_id: UtteranceId, flush_id: str) -> None:
        self._tell(utterance_id, Command.FLUSH, flush_id.encode())

    def end_text(self, utterance_id: UtteranceId) -> None:
        self._tell(utterance_id, Command.END)

    def cancel(self, utterance_id: UtteranceId, played_ms: int | None = None) -> None:
        self._tell(utterance_id, Command.CANCEL, msgspec.json.encode(played_ms))

    def note_listener(self, utterance_id: UtteranceId, report: ListenerReport) -> None:
        # They wait without end for a process that does not read: it does not answer either, and is killed for it.
        self._tell(utterance_id, Command.NOTE, msgspec.json.encode(report))

    def _tell(self, utterance_id: UtteranceId, command: Command, body: bytes = b"") -> None:
        if (placed := self._live.get(utterance_id)) is not None:
            placed.replica.tell(placed, command, body)

    async def add_voice(self, voice: NewVoice) -> VoiceInfo:
        async with self._voice_changes.hold(voice.name):
            check_new_voice(voice, self._running_info())
            return await self._voices.add(self._serving, voice)

    async def remove_voice(self, name: str) -> None:
        async with self._voice_changes.hold(name):
            check_removable(name, self._running_info())
            await self._voices.remove(self._serving, name)

    async def next_event(self) -> EngineEvent:
        event = await self._events.get()
        if event is None:
            self._events.put_nowait(None)  # for the next caller
            raise EngineStopped(self._stop_reason or "the engine was closed")
        return event

    # --- processes --------------------------------------------------------------------------------------------

    async def _run(self, started: "asyncio.Future[EngineError | None]") -> None:
        """The root of all tasks here. `started` is told when all have had their chance: why none serves, or None."""
        try:
            async with asyncio.TaskGroup() as tasks:
                error = await self._start_all(tasks)
                if not started.done():
                    started.set_result(error)
        except Exception:  # also what would end the front without a word
            log.exception("engine_died")
            reason = "the engine died; see the log"
            settle(started, EngineError(reason))
            self._stop(reason)
        finally:
            for keeper in self._keepers:
                keeper.kill()

    async def _start_all(self, tasks: asyncio.TaskGroup) -> EngineError | None:
        """The first alone: what it compiles the others find. What does not fit is told at once, of any of them.

        One that merely dies is left out, and tried again. Returns why none serves.
        """
        waiting = list(self._keepers)
        while waiting and not self._serving:
            keeper = waiting.pop(0)
            tasks.create_task(keeper.keep())
            if isinstance(error := await keeper.first_outcome, StartRefused):
                return error
        for keeper in waiting:
            tasks.create_task(keeper.keep())
        for keeper in waiting:
            if isinstance(error := await keeper.first_outcome, StartRefused):
                return error
        return None if self._serving else EngineError("no engine process has started; see the log, and what they wrote")

    @property
    def _serving(self) -> list[Replica]:
        return [replica for keeper in self._keepers if (replica := keeper.serving) is not None]

    def _admit(self, info: EngineInfo) -> str | None:
        """Admits a process unless it differs from the first: its files may have been exchanged meanwhile."""
        first = self._first_info
        if first is None:
            self._first_info = info
            self._voices.begin(info)
            return None
        for field in dataclasses.fields(EngineInfo):
            ours, theirs = getattr(first, field.name), getattr(info, field.name)
            if field.name not in _MAY_DIFFER and ours != theirs:
                return f"{field.name} is {theirs!r}, and was {ours!r}"
        return None

    def _running_info(self) -> EngineInfo:
        if self._stop_reason is not None:
            raise EngineStopped(self._stop_reason)
        return self.info

    def _publish(self, event: EngineEvent) -> None:
        if event.utterance_id not in self._live:
            return  # it was given up with all others
        if isinstance(event, Done | Cancelled | Failed):
            self._live.pop(event.utterance_id, None)
        self._events.put_nowait(event)

    def _stop(self, reason: str) -> None:
        self._stop_reason = reason
        for utterance_id in list(self._live):
            self._publish(Failed(utterance_id, reason))
        self._events.put_nowait(None)
