"""The loads that an engine is measured under. Each takes a Driver and gives an Outcome; report makes numbers of it."""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Final

from voicegate.bench.engine.driver import Driver, Stream
from voicegate.bench.engine.load import Heard, StartPattern, poisson_starts_s, staggered_starts_s
from voicegate.bench.engine.texts import Script
from voicegate.bench.engine.usage import UsageMeter
from voicegate.clients.bench.stats import percentile, summary
from voicegate.engine.interface import Done, Timing

# An utterance that was refused, or had nothing to say, is tried again after this.
_RETRY_S: Final = 1.0
# How often a running load is looked at.
_LOOK_S: Final = 0.05
# Beyond the longest utterance's length: starts, and leads that have to build up.
_SETTLE_S: Final = 2.0
# Cancelled at a random moment of this part of their lives; so many at a time.
_CANCEL_AFTER_S: Final = (0.1, 1.0)
_NUM_CANCELLERS: Final = 8
_PACKET_48K: Final = 960  # of 20 ms


@dataclass(frozen=True, slots=True)
class Load:
    """Parts of a scenario."""

    scripts: Sequence[Script]  # 3..15 s, say; taken in turn
    short_scripts: Sequence[Script]  # of one clause
    voices: Sequence[str]  # mixed
    pattern: StartPattern = StartPattern.STAGGERED
    num_samples: int = 100  # utterances measured at least
    duration_s: float = 20.0  # measured at least
    limit_s: float = 150.0  # a scenario is cut off then; who still waits counts with what they had waited
    seed: int = 0


@dataclass(slots=True)
class Outcome:
    num_streams: int
    heard: list[Heard] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    expected_s: float = 0.0  # audio of `heard`, had every length been met
    audio_s_per_s: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)

    def add(self, stream: Stream, now_s: float) -> None:
        failure = stream.failure
        if failure is None and isinstance(stream.end, Done) and not stream.arrivals:
            failure = "it ended, and no audio had come"
        if failure is not None:
            self.failures.append(failure)
        elif stream.end is None or stream.arrivals:
            self.heard.append(stream.judged(now_s))
            self.expected_s += stream.script.expected_s
        if isinstance(stream.end, Done):
            self.timings.append(stream.end.timing)


class Casting:
    """Assigns scripts in turn and voices at random; equal seeds assign equally."""

    def __init__(self, scripts: Sequence[Script], voices: Sequence[str], seed: int) -> None:
        self._scripts: Iterator[Script] = cycle(scripts)
        self._voices = list(voices)
        self._rng = random.Random(seed)

    def next(self) -> tuple[Script, str]:
        return next(self._scripts), self._rng.choice(self._voices)


async def first_audio(driver: Driver, load: Load) -> Outcome:
    """One stream at a time, a short text, nothing else running, not held back to real time."""
    outcome = Outcome(1)
    casting = Casting(load.short_scripts, load.voices, load.seed)
    async with UsageMeter(driver) as meter:
        stop_s = time.monotonic() + load.limit_s
        for _ in range(load.num_samples):
            stream = driver.start(*casting.next(), lead_ms=driver.engine.info.max_lead_ms)
            await stream.ended
            outcome.add(stream, time.monotonic())
            if time.monotonic() > stop_s:
                break
        outcome.usage = meter.report()
    outcome.audio_s_per_s = outcome.usage["audio_s_per_s"]
    return outcome


async def burst(driver: Driver, load: Load, num_streams: int) -> Outcome:
    """All at once and as fast as it goes, round after round until there are enough samples."""
    outcome = Outcome(num_streams)
    casting = Casting(load.scripts, load.voices, load.seed)
    rates: list[float] = []
    async with UsageMeter(driver) as meter:
        stop_s = time.monotonic() + load.limit_s
        while len(outcome.heard) < load.num_samples and time.monotonic() < stop_s:
            began_s = time.monotonic()
            lead_ms = driver.engine.info.max_lead_ms
            streams = [driver.start(*casting.next(), due_s=began_s, lead_ms=lead_ms) for _ in range(num_streams)]
            await _wait_for(streams, until_s=stop_s)
            now_s = time.monotonic()
            audio_s = sum(arrival.duration_48k for stream in streams for arrival in stream.arrivals) / 48_000
            rates.append(audio_s / (now_s - began_s))
            for stream in streams:
                outcome.add(stream, now_s)
            if len(outcome.failures) >= num_streams:
                break
        outcome.usage = meter.report()
    await driver.cancel_all()
    outcome.audio_s_per_s = round(percentile(rates, 0.5), 2)
    outcome.extra = {"num_rounds": len(rates), "audio_s_per_s_of_rounds": [round(rate, 2) for rate in rates]}
    return outcome


class LiveLoad:
    """Keeps listeners busy: a stream is live until its audio has been played out; then the next takes its place."""

    def __init__(self, driver: Driver, load: Load, num_streams: int) -> None:
        self.streams: list[Stream] = []
        self.mean_s = sum(script.expected_s for script in load.scripts) / len(load.scripts)
        self._driver = driver
        self._casting = Casting(load.scripts, load.voices, load.seed)
        self._num_streams = num_streams
        self._loop = asyncio.get_running_loop()
        self._timers: set[asyncio.TimerHandle] = set()
        self._is_closed = False
        self._num_live = 0
        self._live_s = 0.0  # integral of the number live
        self._changed_s = time.monotonic()
        self._follows = load.pattern is not StartPattern.POISSON
        self._begin(load, self._changed_s)

    def live_s(self) -> float:
        """Stream-seconds lived so far: its growth over a window, by the window, is the mean number live."""
        self._change_live(0)
        return self._live_s

    def close(self) -> None:
        self._is_closed = True
        for timer in self._timers:
            timer.cancel()

    def _begin(self, load: Load, now_s: float) -> None:
        match load.pattern:
            case StartPattern.STAGGERED:
                for offset_s in staggered_starts_s(self._num_streams, self.mean_s):
                    self._at(now_s + offset_s, self._start)
            case StartPattern.BURST:
                for _ in range(self._num_streams):
                    self._start(now_s)
            case StartPattern.POISSON:
                rate_per_s = self._num_streams / self.mean_s
                self._starts_s = (now_s + start_s for start_s in poisson_starts_s(rate_per_s, random.Random(load.seed)))
                self._at(next(self._starts_s), self._arrive)

    def _arrive(self, due_s: float) -> None:
        self._start(due_s)
        self._at(next(self._starts_s), self._arrive)

    def _at(self, due_s: float, action: Callable[[float], None]) -> None:
        def fire() -> None:
            self._timers.discard(timer)
            if not self._is_closed:
                action(due_s)

        timer = self._loop.call_later(max(due_s - time.monotonic(), 0.0), fire)
        self._timers.add(timer)

    def _start(self, due_s: float) -> None:
        self._change_live(1)
        script, voice = self._casting.next()
        self.streams.append(self._driver.start(script, voice, due_s=due_s, on_end=self._ended))

    def _ended(self, stream: Stream) -> None:
        now_s = time.monotonic()
        done_s = stream.played_out_s()
        self._at(max(done_s, now_s) if done_s is not None else now_s + _RETRY_S, self._left)

    def _left(self, now_s: float) -> None:
        self._change_live(-1)
        if self._follows:
            self._start(now_s)

    def _change_live(self, change: int) -> None:
        now_s = time.monotonic()
        self._live_s += self._num_live * (now_s - self._changed_s)
        self._changed_s = now_s
        self._num_live += change


async def live(driver: Driver, load: Load, num_streams: int) -> Outcome:
    """Real time: listeners as LiveLoad has them. Measured are those that begin in a window after the warm phase.

    From a burst everything is measured: its start is what it is about.
    """
    outcome = Outcome(num_streams)
    stop_s = time.monotonic() + load.limit_s
    async with UsageMeter(driver) as meter:
        with closing(LiveLoad(driver, load, num_streams)) as crowd:
            if load.pattern is not StartPattern.BURST:
                await asyncio.sleep(crowd.mean_s + _SETTLE_S)
            first = 0 if load.pattern is StartPattern.BURST else len(crowd.streams)
            began_s, began_live_s = time.monotonic(), crowd.live_s()
            meter.begin()
            while time.monotonic() < stop_s:
                driver.check()
                if time.monotonic() - began_s > load.duration_s and len(crowd.streams) - first >= load.num_samples:
                    break
                await asyncio.sleep(_LOOK_S)
            measured = crowd.streams[first:]
            window_s = time.monotonic() - began_s
            num_live = (crowd.live_s() - began_live_s) / window_s
            outcome.usage = meter.report()
            # The load goes on until the last of them has been served.
            await _wait_for([stream for stream in measured if stream.end is None], until_s=stop_s)
            now_s = time.monotonic()
            for stream in measured:
                outcome.add(stream, now_s)
    await driver.cancel_all()
    outcome.audio_s_per_s = outcome.usage["audio_s_per_s"]
    outcome.extra = {"mean_live_streams": round(num_live, 1), "window_s": round(window_s, 2)}
    return outcome


async def cancel(driver: Driver, load: Load, num_streams: int) -> Outcome:
    """Cancels at random moments beside a live load; `heard` tells of those that had been heard by then.

    The engine gives back everything an utterance holds in the call that publishes `Cancelled`, before its next step:
    cancel -> Cancelled is cancel -> slot free.
    """
    outcome = Outcome(num_streams)
    latencies_ms: list[float] = []
    num_late_packets = 0
    stop_s = time.monotonic() + load.limit_s

    async def cancel_some(seed: int) -> None:
        nonlocal num_late_packets
        rng, casting = random.Random(seed), Casting(load.scripts, load.voices, seed)
        while len(latencies_ms) < load.num_samples and time.monotonic() < stop_s:
            stream = driver.start(*casting.next())
            await asyncio.wait([stream.ended], timeout=rng.uniform(*_CANCEL_AFTER_S))
            if stream.end is None:
                cancelled_s, num_arrivals = time.monotonic(), len(stream.arrivals)
                driver.engine.cancel(stream.utterance_id)
                await stream.ended
                assert stream.ended_s is not None
                latencies_ms.append((stream.ended_s - cancelled_s) * 1000)
                num_late_packets += sum(each.duration_48k for each in stream.arrivals[num_arrivals:]) // _PACKET_48K
            outcome.add(stream, time.monotonic())
            if stream.failure is not None:
                await asyncio.sleep(_RETRY_S)

    async with UsageMeter(driver) as meter:
        with closing(LiveLoad(driver, load, num_streams)) as crowd:
            if num_streams:
                await asyncio.sleep(crowd.mean_s + _SETTLE_S)
            meter.begin()
            await asyncio.gather(*(cancel_some(load.seed + index) for index in range(_NUM_CANCELLERS)))
            outcome.usage = meter.report()
    await driver.cancel_all()
    outcome.audio_s_per_s = outcome.usage["audio_s_per_s"]
    outcome.extra = {"cancel_ms": summary(latencies_ms), "packets_after_cancel": num_late_packets}
    return outcome


async def _wait_for(streams: Sequence[Stream], *, until_s: float) -> None:
    if streams:
        await asyncio.wait([stream.ended for stream in streams], timeout=max(until_s - time.monotonic(), 0.0))
