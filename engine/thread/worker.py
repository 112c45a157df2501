"""The engine in a thread of its own: commands in through an inbox, events out through the asyncio loop.

The thread owns the core and the GPU; the loop owns the set of live utterances, so that `submit` can refuse at once.
"""

import asyncio
import dataclasses
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

import structlog

from voicegate.engine.audio.encoding import Encoders
from voicegate.engine.audio.outlet import Sink
from voicegate.engine.checks import check_new_voice, check_removable, with_voice, without_voice
from voicegate.engine.core.stages import ReadyVoice
from voicegate.engine.device.watcher import Waker, Watcher
from voicegate.engine.interface import (
    AtRest,
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
    Unsupported,
    UtteranceId,
    UtteranceRequest,
    VoiceInfo,
)
from voicegate.engine.llm.backend import LlmDied
from voicegate.engine.named_places import NamedPlaces
from voicegate.engine.requests import check_request
from voicegate.engine.thread.driven import DrivenCore
from voicegate.engine.thread.inbox import Inbox
from voicegate.engine.thread.outbox import Outbox
from voicegate.engine.voices.keeper import VoiceKeeper
from voicegate.engine.voices.voice import Voice

log = structlog.get_logger()

# Commands applied between two steps. Lower -> a burst of them takes effect later; higher -> it is felt in speech.
_COMMANDS_S = 0.001

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    core: DrivenCore
    info: EngineInfo
    voices: VoiceKeeper | None = None  # makes new ones; None: the voices are fixed
    close: Callable[[], None] = lambda: None  # ends what loading started: all encoded audio has left when it returns
    encoders: Encoders | None = None  # the core's, where it was given some; `close` ends them too


class ThreadedEngine:
    """`engine.interface.Engine` over a core that `load` builds, in the thread that will run it.

    `load` is given the sink for the core's events, and what wakes the thread that then runs it.
    """

    def __init__(
        self, load: Callable[[Sink, Waker], LoadedEngine], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._load = load
        self._clock = clock
        self._inbox = Inbox()
        self._watcher = Watcher(self._inbox.wake)
        self._events: asyncio.Queue[EngineEvent | None] = asyncio.Queue()
        self._live: dict[UtteranceId, int] = {}  # and how much text each was given
        self._resting: set[UtteranceId] = set()  # of these, those that hold no place
        self._num_submitted = 0
        self._info: EngineInfo | None = None
        self._thread: threading.Thread | None = None
        self._stop_reason: str | None = "the engine has not been started"
        # As of the engine's last step:
        self._welcome = (0, 0)  # how many submitted ones it had seen; how many more might come
        self._counters: Mapping[str, float] = {}
        self._pulse = 0
        self._is_at_rest = True
        self._keeper: VoiceKeeper | None = None
        self._encoders: Encoders | None = None
        self._core: DrivenCore | None = None  # to look at from outside its thread
        self._voice_changes = NamedPlaces()
        self._arrival = asyncio.Lock()  # the engine's thread is given one voice at a time
        self._arriving: asyncio.Future[ReadyVoice] | None = None

    # --- from the asyncio loop --------------------------------------------------------------------------------

    @property
    def info(self) -> EngineInfo:
        if self._info is None:
            raise EngineStopped(self._stop_reason or "the engine is still starting")
        return self._info

    @property
    def unready_reason(self) -> str | None:
        if self._stop_reason is not None:
            return self._stop_reason
        parts = (self._encoders, self._core)
        return next((part.unready_reason for part in parts if part is not None and part.unready_reason), None)

    @property
    def room(self) -> int:
        if self._info is None or self.unready_reason is not None:
            return 0
        num_seen, num_welcome = self._welcome
        num_unseen = self._num_submitted - num_seen
        return max(0, min(self._info.max_utterances - self._num_placed, num_welcome - num_unseen))

    @property
    def pulse(self) -> int | None:
        if self._stop_reason is not None or (self._is_at_rest and self._inbox.is_empty):
            return None
        return self._pulse

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[LoadedEngine] = loop.create_future()
        self._thread = threading.Thread(target=self._run, args=(loop, ready), name="engine", daemon=True)
        self._thread.start()
        loaded = await ready
        self._info, self._keeper, self._encoders = loaded.info, loaded.voices, loaded.encoders
        self._core = loaded.core
        self._stop_reason = None

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._inbox.close()
            await asyncio.to_thread(thread.join)

    def submit(self, request: UtteranceRequest) -> None:
        info = self._running_info()
        if request.utterance_id in self._live:
            raise EngineError(f"utterance {request.utterance_id!r} is already running")
        check_request(request, info)
        self._check_places(info)
        num_seen, num_welcome = self._welcome
        if self._num_submitted - num_seen >= num_welcome:
            raise Overloaded("the models have no room, and others are waiting for it already; try again shortly")
        self._live[request.utterance_id] = 0
        self._num_submitted += 1
        seed = secrets.randbits(63) if request.seed is None else request.seed
        self._inbox.open(request.utterance_id, lambda core: core.submit(request, seed=seed))

    def readmit(self, utterance_id: UtteranceId) -> None:
        """Only for places: that the models have room is asked of new requests."""
        if utterance_id in self._resting:
            self._check_places(self._running_info())
            self._resting.discard(utterance_id)

    @property
    def _num_placed(self) -> int:
        return len(self._live) - len(self._resting)

    def _check_places(self, info: EngineInfo) -> None:
        """Raises Overloaded."""
        if (reason := self.unready_reason) is not None:
            raise Overloaded(f"{reason}; try again shortly")
        if self._num_placed >= info.max_utterances:
            raise Overloaded(f"all {info.max_utterances} utterances are in use; try again shortly")

    def push_text(self, utterance_id: UtteranceId, text: str) -> None:
        num_before = self._live.get(utterance_id)
        if num_before is None or not text:
            return
        self._resting.discard(utterance_id)
        limit = self.info.max_text_chars
        self._live[utterance_id] = num_before + len(text)
        if num_before + len(text) <= limit:
            self._inbox.push(utterance_id, text)
        elif num_before <= limit:  # what waits for the engine's thread is bounded by what an utterance takes
            message = f"an utterance takes {limit} characters of text in all; start another for the rest"
            self._inbox.add(utterance_id, lambda core: core.fail(utterance_id, message))

    def flush_text(self, utterance_id: UtteranceId, flush_id: str) -> None:
        if utterance_id in self._live:
            self._inbox.add(utterance_id, lambda core: core.flush_text(utterance_id, flush_id))

    def end_text(self, utterance_id: UtteranceId) -> None:
        if utterance_id in self._live:
            self._inbox.add(utterance_id, lambda core: core.end_text(utterance_id))

    def note_listener(self, utterance_id: UtteranceId, report: ListenerReport) -> None:
        if utterance_id in self._live:
            self._inbox.note(utterance_id, report)

    def cancel(self, utterance_id: UtteranceId, played_ms: int | None = None) -> None:
        if utterance_id not in self._live:
            return
        text = self._inbox.cancel(utterance_id, lambda core: core.cancel(utterance_id, played_ms))
        if text is not None:  # nothing was begun
            self._num_submitted -= 1
            self._publish([Cancelled(utterance_id, 0, 0, "", text)])

    async def add_voice(self, voice: NewVoice) -> VoiceInfo:
        async with self._voice_changes.hold(voice.name):
            info, keeper = self._running_info(), self._keeper
            if keeper is None:
                raise Unsupported(f"model {info.model!r} has fixed voices")
            check_new_voice(voice, info)
            try:
                made = await keeper.make(voice)
            except EngineError:
                self._running_info()  # which has it given up, where it has stopped
                raise
            async with self._arrival:
                ready = await self._prepare(made)
            # No waiting from here to where it can be asked for: it is there whole, or not at all.
            self._inbox.put(lambda core: core.install_voice(ready))
            added = made.info(info.languages)
            self._info = with_voice(self.info, added, is_clone=voice.is_clone)
            unsaved = "" if voice.is_clone else await asyncio.to_thread(keeper.save, made)
            return dataclasses.replace(added, remark="; ".join(filter(None, (added.remark, unsaved))))

    async def remove_voice(self, name: str) -> None:
        async with self._voice_changes.hold(name):
            info = self._running_info()
            check_removable(name, info)
            # First here, so that no further utterance names it; those submitted are ahead of the command.
            self._info = without_voice(info, name)
            self._inbox.put(lambda core: core.remove_voice(name))
            if self._keeper is not None and name not in info.clones:
                await asyncio.to_thread(self._keeper.delete, name)

    async def _prepare(self, voice: Voice) -> ReadyVoice:
        """Returns when the engine could speak with it. Raises what the engine's thread answers, EngineStopped."""
        self._running_info()  # it may have stopped meanwhile
        loop = asyncio.get_running_loop()
        arriving: asyncio.Future[ReadyVoice] = loop.create_future()
        self._arriving = arriving

        def answer(outcome: ReadyVoice | EngineError) -> None:
            _call_soon(loop, self._arrived, arriving, outcome)

        self._inbox.put(lambda core: core.prepare_voice(voice, answer))
        try:
            return await arriving
        except asyncio.CancelledError:
            self._inbox.put(lambda core: core.refuse_voices("nobody waits for it any more", voice))
            if arriving.done() and not arriving.cancelled() and arriving.exception() is None:
                self._discard(arriving.result())
            raise
        finally:
            self._arriving = None

    def _arrived(self, arriving: "asyncio.Future[ReadyVoice]", outcome: ReadyVoice | EngineError) -> None:
        if arriving.cancelled() and isinstance(outcome, ReadyVoice):
            self._discard(outcome)
        _settle(arriving, outcome)

    def _discard(self, ready: ReadyVoice) -> None:
        """Nobody waits for it any more."""
        self._inbox.put(lambda core: core.discard_voice(ready))

    def stats(self) -> EngineStats:
        """The core's, the thread's own CPU time (host_seconds) and steps, and what became of the encoders."""
        if self._core is None:
            return EngineStats()
        encoders = {} if self._encoders is None else self._encoders.counters
        return self._core.stats({**self._counters, **encoders})

    async def next_event(self) -> EngineEvent:
        event = await self._events.get()
        if event is None:
            self._events.put_nowait(None)  # for the next caller
            raise EngineStopped(self._stop_reason or "the engine was closed")
        return event

    def _running_info(self) -> EngineInfo:
        if self._stop_reason is not None:
            raise EngineStopped(self._stop_reason)
        return self.info

    def _publish(self, events: list[EngineEvent]) -> None:
        for event in events:
            if isinstance(event, AtRest):
                if self._live.get(event.utterance_id) != event.num_chars:
                    continue  # text has come since
                self._resting.add(event.utterance_id)
            elif isinstance(event, Done | Cancelled | Failed):
                if isinstance(event, Failed):
                    self.cancel(event.utterance_id)  # its encoder may have failed, of which the core has heard nothing
                self._live.pop(event.utterance_id, None)
                self._resting.discard(event.utterance_id)
            self._events.put_nowait(event)

    def _stopped(self, reason: str) -> None:
        self._stop_reason = reason
        if self._keeper is not None:
            self._keeper.close()
        if self._arriving is not None:
            _settle(self._arriving, EngineStopped(reason))
        for utterance_id in self._live:  # whom the engine's thread has not heard of
            self._events.put_nowait(Failed(utterance_id, reason))
        self._live.clear()
        self._resting.clear()
        self._events.put_nowait(None)

    # --- in the engine's thread -------------------------------------------------------------------------------

    def _run(self, loop: asyncio.AbstractEventLoop, ready: "asyncio.Future[LoadedEngine]") -> None:
        try:
            loaded = self._load(Outbox(loop, self._publish).put, self._watcher)
            self._welcome = (0, loaded.core.num_welcome)
        except BaseException as error:  # noqa: BLE001 - handed to the caller of start()
            _call_soon(loop, _settle, ready, error)
            return
        reason = "the engine was closed"
        with ExitStack() as ends:  # in reverse, and each whatever becomes of the others
            ends.callback(lambda: _call_soon(loop, self._stopped, reason))
            ends.callback(loaded.close)
            ends.callback(self._watcher.close)
            ends.callback(lambda: loaded.core.fail_all(reason))
            try:
                _call_soon(loop, _settle, ready, loaded)
                self._serve(loaded.core)
            except LlmDied as error:
                log.exception("engine_died")
                reason = f"the speech LLM died: {error}"
            except BaseException:  # also what would end a thread without a word
                log.exception("engine_died")
                reason = "the engine died; see the log"

    def _serve(self, core: DrivenCore) -> None:
        wait_s: float | None = None
        num_steps, num_moves = count(1), 0
        while self._take_commands(core, wait_s):
            decision = core.step()
            if not decision.is_idle:
                wait_s = 0.0
            else:
                wait_s = None if decision.wake_at_s is None else max(decision.wake_at_s - self._clock(), 0.0)
            # While what all need has work only what comes of it is progress: it may hang.
            is_busy = core.is_busy
            num_moves += not is_busy
            self._pulse = num_moves + core.num_fetched
            self._is_at_rest = decision.is_idle and not is_busy
            self._welcome = (core.num_submitted, core.num_welcome)
            self._counters = {**core.counters, "host_seconds": time.thread_time(), "host_steps": next(num_steps)}

    def _take_commands(self, core: DrivenCore, wait_s: float | None) -> bool:
        """Apply what has come, for a moment at most, waiting up to `wait_s` (None: for ever) for it. False: stop."""
        if wait_s == 0.0 or not self._inbox.is_empty or not self._watcher.arm():
            commands = self._inbox.take(0.0)
        else:  # devices are watched only while this thread sleeps
            commands = self._inbox.take(wait_s)
            self._watcher.disarm()
        until_s = self._clock() + _COMMANDS_S
        while commands:
            for command in commands:
                command(core)
            commands = self._inbox.take(0.0) if self._clock() < until_s else []
        self._is_at_rest = False
        return not self._inbox.is_closed


def _settle(future: "asyncio.Future[_Result]", outcome: _Result | BaseException) -> None:
    """Unless its waiter has given up, or was told already."""
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: object) -> None:
    """call_soon_threadsafe, unless the loop is already gone: then nobody is left to tell."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *args)
