"""The engine in a thread of its own: commands in through a queue, events out through the asyncio loop.

The thread owns the core and the GPU; the loop owns the set of live utterances, so that `submit` can refuse at once.
"""

import asyncio
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import structlog

from engine.audio.packets import create_packet_encoder
from engine.core import EngineCore
from engine.interface import (
    Cancelled,
    Done,
    EngineError,
    EngineEvent,
    EngineInfo,
    EngineStopped,
    Failed,
    Overloaded,
    SpeakingMode,
    UnknownVoice,
    Unsupported,
    UtteranceId,
    UtteranceRequest,
)

log = structlog.get_logger()

# How long a refused client should wait: about the length of a short utterance.
_RETRY_AFTER_MS = 2_000

Command = Callable[[EngineCore], None]


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    core: EngineCore
    info: EngineInfo


class ThreadedEngine:
    """`engine.interface.Engine` over an EngineCore that `load` builds, in the thread that will run it."""

    def __init__(self, load: Callable[[], LoadedEngine]) -> None:
        self._load = load
        self._commands: SimpleQueue[Command | None] = SimpleQueue()
        self._events: asyncio.Queue[EngineEvent | None] = asyncio.Queue()
        self._live: set[UtteranceId] = set()
        self._info: EngineInfo | None = None
        self._thread: threading.Thread | None = None
        self._stop_reason: str | None = "the engine has not been started"

    # --- from the asyncio loop --------------------------------------------------------------------------------

    @property
    def info(self) -> EngineInfo:
        if self._info is None:
            raise EngineStopped(self._stop_reason or "the engine is still starting")
        return self._info

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[EngineInfo] = loop.create_future()
        self._thread = threading.Thread(target=self._run, args=(loop, ready), name="engine", daemon=True)
        self._thread.start()
        self._info = await ready
        self._stop_reason = None

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._commands.put(None)
            await asyncio.to_thread(thread.join)

    def submit(self, request: UtteranceRequest) -> None:
        info = self.info
        if self._stop_reason is not None:
            raise EngineStopped(self._stop_reason)
        if request.utterance_id in self._live:
            raise EngineError(f"utterance {request.utterance_id!r} is already running")
        _check_request(request, info)
        if len(self._live) >= info.max_utterances:
            raise Overloaded(
                f"all {info.max_utterances} utterances are in use; try again shortly", retry_after_ms=_RETRY_AFTER_MS
            )
        self._live.add(request.utterance_id)
        seed = secrets.randbits(63) if request.seed is None else request.seed
        self._commands.put(lambda core: core.submit(request, seed=seed))

    def push_text(self, utterance_id: UtteranceId, text: str) -> None:
        self._commands.put(lambda core: core.push_text(utterance_id, text))

    def flush_text(self, utterance_id: UtteranceId, flush_id: str) -> None:
        self._commands.put(lambda core: core.flush_text(utterance_id, flush_id))

    def end_text(self, utterance_id: UtteranceId) -> None:
        self._commands.put(lambda core: core.end_text(utterance_id))

    def cancel(self, utterance_id: UtteranceId, played_ms: int | None = None) -> None:
        self._commands.put(lambda core: core.cancel(utterance_id, played_ms))

    async def next_event(self) -> EngineEvent:
        event = await self._events.get()
        if event is None:
            self._events.put_nowait(None)  # for the next caller
            raise EngineStopped(self._stop_reason or "the engine was closed")
        return event

    def _publish(self, events: list[EngineEvent]) -> None:
        for event in events:
            if isinstance(event, Done | Cancelled | Failed):
                self._live.discard(event.utterance_id)
            self._events.put_nowait(event)

    def _stopped(self, reason: str) -> None:
        self._stop_reason = reason
        self._events.put_nowait(None)

    # --- in the engine's thread -------------------------------------------------------------------------------

    def _run(self, loop: asyncio.AbstractEventLoop, ready: "asyncio.Future[EngineInfo]") -> None:
        try:
            loaded = self._load()
        except BaseException as error:  # noqa: BLE001 - handed to the caller of start()
            _call_soon(loop, ready.set_exception, error)
            return
        _call_soon(loop, ready.set_result, loaded.info)
        reason = "the engine was closed"
        try:
            self._serve(loaded.core, loop)
        except Exception:
            log.exception("engine_died")
            reason = "the engine died; see the log"
        loaded.core.fail_all(reason)
        _call_soon(loop, self._publish, loaded.core.take_events())
        _call_soon(loop, self._stopped, reason)

    def _serve(self, core: EngineCore, loop: asyncio.AbstractEventLoop) -> None:
        wait_s: float | None = None
        while self._take_commands(core, wait_s):
            decision = core.step()
            events = core.take_events()
            if events:
                _call_soon(loop, self._publish, events)
            if decision.work is not None:
                wait_s = 0.0
            else:
                wait_s = None if decision.wake_at_s is None else max(decision.wake_at_s - time.monotonic(), 0.0)

    def _take_commands(self, core: EngineCore, wait_s: float | None) -> bool:
        """Apply all commands there are, waiting up to `wait_s` (None: for ever) for the first. False: stop."""
        is_blocking = wait_s != 0.0
        with suppress(Empty):
            while True:
                command = self._commands.get(block=is_blocking, timeout=wait_s if is_blocking else None)
                if command is None:
                    return False
                command(core)
                is_blocking = False
        return True


def _check_request(request: UtteranceRequest, info: EngineInfo) -> None:
    """Refuse what cannot work before anything starts. Raises UnknownVoice, Unsupported."""
    if request.voice not in {voice.name for voice in info.voices}:
        names = ", ".join(voice.name for voice in info.voices)
        raise UnknownVoice(f"unknown voice {request.voice!r}; this model has {names}")
    if request.mode is not SpeakingMode.AUTO and request.mode not in info.modes:
        raise Unsupported(f"model {info.model!r} has no mode {request.mode.value!r}")
    if request.instruct is not None:
        raise Unsupported(f"model {info.model!r} does not take instructions")
    create_packet_encoder(request.audio)


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: object) -> None:
    """call_soon_threadsafe, unless the loop is already gone: then nobody is left to tell."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *args)
