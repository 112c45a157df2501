"""Utterances through the engine seam on one asyncio loop: starts them, feeds their text, notes when audio came.

Per event it does a dictionary look-up and an append, and it looks into no packet: at 20,000 packets a second, in some
thousand events, a slow bench must not pass for a slow engine (usage measures the loop it runs on).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from voicegate.bench.engine.load import Heard, listen, played_out_s, text_times_s
from voicegate.bench.engine.texts import Script
from voicegate.clients.python.timeline import Arrival
from voicegate.engine.interface import (
    AudioFormat,
    AudioReady,
    Cancelled,
    Done,
    EndEvent,
    Engine,
    EngineError,
    EngineEvent,
    EngineStopped,
    Failed,
    SpeakingMode,
    UtteranceId,
    UtteranceRequest,
)


@dataclass(frozen=True, slots=True)
class Speech:
    """Common to all utterances of a run."""

    mode: SpeakingMode = SpeakingMode.AUTO
    audio: AudioFormat = field(default_factory=AudioFormat)
    tokens_per_s: float | None = None  # pace of the text; None: given whole


@dataclass(slots=True, eq=False)
class Stream:
    """One utterance and its listener, on the clock of `time.monotonic`."""

    utterance_id: UtteranceId
    script: Script
    due_s: float  # when it was to begin: a late bench is counted as the engine's delay, not hidden
    ended: "asyncio.Future[None]"
    on_end: "Callable[[Stream], None] | None" = None
    arrivals: list[Arrival] = field(default_factory=list)
    end: EndEvent | None = None
    ended_s: float | None = None

    @property
    def failure(self) -> str | None:
        return self.end.message if isinstance(self.end, Failed) else None

    def judged(self, now_s: float) -> Heard:
        """At its end, or cut off `now_s`. Raises ValueError where it has ended without audio."""
        return listen(self.due_s, self.arrivals, cut_off_s=now_s if self.end is None else None)

    def played_out_s(self) -> float | None:
        """None: nothing to play."""
        return played_out_s(self.arrivals) if self.arrivals else None


class Driver:
    """Made by `driving`."""

    def __init__(self, engine: Engine, speech: Speech) -> None:
        self.num_events = 0
        self.num_packets = 0
        self.engine = engine
        self.speech = speech
        self._loop = asyncio.get_running_loop()
        self._streams: dict[UtteranceId, Stream] = {}
        self._num_started = 0
        self._stop_reason: str | None = None

    def start(
        self,
        script: Script,
        voice: str,
        *,
        due_s: float | None = None,
        lead_ms: int | None = None,
        on_end: Callable[[Stream], None] | None = None,
        is_written: bool = True,
    ) -> Stream:
        """Begin an utterance; what the engine refuses ends it at once. Raises EngineStopped.

        `is_written`: its text is pushed here; else by the caller.
        """
        self.check()
        number, self._num_started = self._num_started, self._num_started + 1
        stream = Stream(
            UtteranceId(f"bench {number}"),
            script,
            time.monotonic() if due_s is None else due_s,
            self._loop.create_future(),
            on_end,
        )
        request = UtteranceRequest(
            stream.utterance_id, voice, self.speech.audio, self.speech.mode, seed=number, lead_ms=lead_ms
        )
        self._streams[stream.utterance_id] = stream
        try:
            self.engine.submit(request)
        except EngineError as error:
            self._end(stream, Failed(stream.utterance_id, str(error)), time.monotonic())
            return stream
        if not is_written:
            return stream
        if self.speech.tokens_per_s is None:
            self.engine.push_text(stream.utterance_id, script.text)
            self.engine.end_text(stream.utterance_id)
        else:
            self._push_paced(stream, text_times_s(len(script.pieces), self.speech.tokens_per_s), 0)
        return stream

    def check(self) -> None:
        """Raises EngineStopped once the engine has."""
        if self._stop_reason is not None:
            raise EngineStopped(self._stop_reason)

    async def cancel_all(self) -> None:
        """Returns when the engine is idle."""
        streams = list(self._streams.values())
        for stream in streams:
            self.engine.cancel(stream.utterance_id)
        if streams:
            await asyncio.wait([stream.ended for stream in streams])

    async def pump(self) -> None:
        """Takes events until the engine stops; then everything that was alive has failed."""
        try:
            while True:
                event = await self.engine.next_event()
                self._take(event, time.monotonic())
        except EngineStopped as error:
            self._stop_reason = str(error)
        finally:
            reason = self._stop_reason = self._stop_reason or "the bench stopped listening"
            for stream in list(self._streams.values()):
                self._end(stream, Failed(stream.utterance_id, reason), time.monotonic())

    def _take(self, event: EngineEvent, now_s: float) -> None:
        self.num_events += 1
        stream = self._streams[event.utterance_id]
        if isinstance(event, AudioReady):
            num_packets = len(event.packets)
            self.num_packets += num_packets
            duration_48k = num_packets * self.speech.audio.frame_ms * 48
            stream.arrivals.append(Arrival(now_s, event.pts_48k, duration_48k))
        elif isinstance(event, Done | Cancelled | Failed):
            self._end(stream, event, now_s)

    def _end(self, stream: Stream, event: EndEvent, now_s: float) -> None:
        del self._streams[stream.utterance_id]
        stream.end, stream.ended_s = event, now_s
        stream.ended.set_result(None)
        if stream.on_end is not None:
            stream.on_end(stream)

    def _push_paced(self, stream: Stream, times_s: list[float], index: int) -> None:
        """Each piece at its time, whatever became of the ones before."""
        if stream.end is not None:
            return
        self.engine.push_text(stream.utterance_id, stream.script.pieces[index])
        if index + 1 == len(times_s):
            self.engine.end_text(stream.utterance_id)
            return
        wait_s = max(stream.due_s + times_s[index + 1] - time.monotonic(), 0.0)
        self._loop.call_later(wait_s, self._push_paced, stream, times_s, index + 1)


@asynccontextmanager
async def driving(engine: Engine, speech: Speech) -> AsyncIterator[Driver]:
    """A driver over an engine that has been started; leaves the engine idle, unless it has stopped."""
    driver = Driver(engine, speech)
    pump = asyncio.create_task(driver.pump())
    try:
        yield driver
        await driver.cancel_all()
    finally:
        pump.cancel()
        with suppress(asyncio.CancelledError):
            await pump
