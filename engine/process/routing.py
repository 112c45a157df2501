"""Several engine processes as one engine: where newcomers go, and what becomes of those whose process is lost.

What it gives back is what the processes tell; it must not know what an engine is made of, nor torch.
"""

import asyncio
import dataclasses
from collections.abc import Sequence

import structlog

from voicegate.engine.audio.packets import pre_skip_48k
from voicegate.engine.core.requests import check_request
from voicegate.engine.interface import (
    AtRest,
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
    Overloaded,
    UtteranceId,
    UtteranceRequest,
    VoiceInfo,
    VoiceOverloaded,
    check_new_voice,
    check_removable,
)
from voicegate.engine.load.progress import SILENT, Progress
from voicegate.engine.named_places import NamedPlaces
from voicegate.engine.placement import choose
from voicegate.engine.process.crew import Crew
from voicegate.engine.process.replica import Replica, settle
from voicegate.engine.process.seat import total
from voicegate.engine.process.shared_voices import SharedVoices
from voicegate.engine.process.site import Site
from voicegate.engine.process.wire import NewVoice

log = structlog.get_logger()


class RoutingEngine:
    """`engine.interface.Engine` over processes that `sites` launch, one in each.

    A process that is lost fails its own utterances and is replaced; one that hangs for `patience_s` is killed.
    """

    def __init__(self, sites: Sequence[Site], *, patience_s: float = 10.0, on_progress: Progress = SILENT) -> None:
        self._sites = sites
        self._patience_s = patience_s
        self._on_progress = on_progress
        self._voices = SharedVoices()
        self._voice_changes = NamedPlaces()
        self._crew: Crew | None = None
        self._live: dict[UtteranceId, tuple[Replica, int]] = {}  # and how much text each was given
        self._info: EngineInfo | None = None  # as it was told last
        self._events: asyncio.Queue[EngineEvent | None] = asyncio.Queue()
        self._stop_reason: str | None = "the engine has not been started"
        self._running: asyncio.Task[None] | None = None
        self._max_text_chars = 0  # of all, once they have started: asked for with each word

    # --- the seam ---------------------------------------------------------------------------------------------

    @property
    def info(self) -> EngineInfo:
        if self._crew is None or self._crew.info is None:
            raise EngineStopped(self._stop_reason or "the engine is still starting")
        voices, clones, max_utterances = self._voices.infos, self._voices.clones, self._crew.max_utterances
        known = self._info  # asked for with each message
        if known is None or (known.voices, known.clones, known.max_utterances) != (voices, clones, max_utterances):
            known = dataclasses.replace(self._crew.info, voices=voices, clones=clones, max_utterances=max_utterances)
            self._info = known
        return known

    @property
    def unready_reason(self) -> str | None:
        if self._stop_reason is not None:
            return self._stop_reason
        serving = self._serving
        reasons = dict.fromkeys(replica.unready_reason for replica in serving)
        if None in reasons:
            return None
        return "; ".join(filter(None, reasons)) or "no engine process is running; they are being replaced"

    @property
    def room(self) -> int:
        return 0 if self._stop_reason is not None else sum(replica.room for replica in self._serving)

    @property
    def pulse(self) -> int | None:
        """Processes that hang are looked for here, and killed: while that goes on, the whole does not hang."""
        if self._crew is None or self._stop_reason is not None or not self._live:
            return None
        return self._crew.num_looks

    def stats(self) -> EngineStats:
        """The sums of all, and each process's place's own: `replicas_lost`, `replica_ready` and others beside them."""
        return total({} if self._crew is None else self._crew.stats)

    async def start(self) -> None:
        # Loads libopus, for which a program is run: the first utterance's request would have all sockets wait for it.
        await asyncio.to_thread(pre_skip_48k, AudioFormat())
        loop = asyncio.get_running_loop()
        self._crew = Crew(
            self._sites,
            patience_s=self._patience_s,
            voices=self._voices,
            publish=self._publish,
            on_progress=self._on_progress,
        )
        started: asyncio.Future[EngineError | None] = loop.create_future()
        self._running = loop.create_task(self._run(self._crew, started))
        error = await started
        if error is not None:
            await self.close()
            raise error
        if self._running.done():  # it died in the same moment
            raise EngineStopped(self._stop_reason or "the engine died; see the log")
        self._max_text_chars = self.info.max_text_chars
        self._stop_reason = None

    async def close(self) -> None:
        running, self._running = self._running, None
        if running is not None and self._crew is not None:
            self._stop_reason = "the engine was closed"
            await self._crew.end(running)
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
        self._live[request.utterance_id] = (able[chosen], 0)
        able[chosen].submit(request)

    def readmit(self, utterance_id: UtteranceId) -> None:
        if (live := self._live.get(utterance_id)) is not None:
            live[0].readmit(utterance_id)

    def push_text(self, utterance_id: UtteranceId, text: str) -> None:
        if (live := self._live.get(utterance_id)) is None or not text:
            return
        replica, num_before = live
        self._live[utterance_id] = (replica, num_before + len(text))
        if num_before <= self._max_text_chars:  # what waits for the process is bounded by what an utterance takes
            replica.push_text(utterance_id, text)

    def flush_text(self, utterance_id: UtteranceId, flush_id: str) -> None:
        if (live := self._live.get(utterance_id)) is not None:
            live[0].flush_text(utterance_id, flush_id)

    def end_text(self, utterance_id: UtteranceId) -> None:
        if (live := self._live.get(utterance_id)) is not None:
            live[0].end_text(utterance_id)

    def note_listener(self, utterance_id: UtteranceId, report: ListenerReport) -> None:
        if (live := self._live.get(utterance_id)) is not None:
            live[0].note_listener(utterance_id, report)

    def cancel(self, utterance_id: UtteranceId, played_ms: int | None = None) -> None:
        if (live := self._live.get(utterance_id)) is not None:
            live[0].cancel(utterance_id, played_ms)

    async def add_voice(
        self,
        name: str,
        recording: bytes,
        *,
        transcript: str = "",
        description: str = "",
        replace: bool = False,
        is_clone: bool = False,
    ) -> VoiceInfo:
        async with self._voice_changes.hold(name):
            check_new_voice(name, self._running_info(), replace=replace)
            voice = NewVoice(name, transcript, description, is_replacing=replace, is_clone=is_clone)
            return await self._voices.add(self._serving, voice, recording)

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

    async def _run(self, crew: Crew, started: "asyncio.Future[EngineError | None]") -> None:
        """The root of all tasks here."""
        try:
            await crew.run(started)
        except Exception:  # also what would end the front without a word
            log.exception("engine_died")
            reason = "the engine died; see the log"
            settle(started, EngineError(reason))
            self._stop(reason)

    @property
    def _serving(self) -> list[Replica]:
        return [] if self._crew is None else self._crew.serving

    def _running_info(self) -> EngineInfo:
        if self._stop_reason is not None:
            raise EngineStopped(self._stop_reason)
        return self.info

    def _publish(self, event: EngineEvent) -> None:
        if isinstance(event, AtRest):
            live = self._live.get(event.utterance_id)
            if live is None or live[1] != event.num_chars:
                return  # it has ended, or text has come since
            live[0].rest(event.utterance_id)
        if isinstance(event, Done | Cancelled | Failed):
            self._live.pop(event.utterance_id, None)
        self._events.put_nowait(event)

    def _stop(self, reason: str) -> None:
        self._stop_reason = reason
        for utterance_id in list(self._live):
            self._publish(Failed(utterance_id, reason))
        self._events.put_nowait(None)
