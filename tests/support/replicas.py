"""Engine processes that are none: the other side of a front's channel, with an engine, in the same event loop."""

import asyncio
import concurrent.futures
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.contract.listener import Listener
from tests.support.patience import PATIENCE_S
from voicegate.engine import child_process
from voicegate.engine.fake.engine import FakeEngine
from voicegate.engine.interface import Engine
from voicegate.engine.process import child, keeper
from voicegate.engine.process.child import EXIT_FAILED, FrontGone, serve_engine
from voicegate.engine.process.front import RoutingEngine
from voicegate.engine.process.keeper import Site

KILLED = -9


class LoopProcess:
    """Implements EngineProcess."""

    def __init__(self, loop: asyncio.AbstractEventLoop, end: socket.socket, engine: Engine) -> None:
        self.pid = id(self)
        self._end = end.dup()
        self._engine = engine
        self._ended = asyncio.run_coroutine_threadsafe(self._serve(), loop)

    def kill(self) -> None:
        self._ended.cancel()

    def wait(self, timeout: float) -> int:  # as subprocess.Popen has it
        try:
            return self._ended.result(timeout)
        except TimeoutError as error:
            raise subprocess.TimeoutExpired("engine process", timeout) from error
        except concurrent.futures.CancelledError:
            return KILLED

    async def _serve(self) -> int:
        try:
            return await serve_engine(self._end, lambda _greeting, _progress: self._engine)
        except (FrontGone, ExceptionGroup):  # what a device raises ends a process
            return EXIT_FAILED
        finally:
            await self._engine.close()


class Host:
    """Where the processes of a test run: each start takes the next engine that `make` gives for its place."""

    def __init__(self, *makes: Callable[[], Engine]) -> None:
        self._makes = makes
        self.engines: dict[str, list[Engine]] = {self.name(number): [] for number in range(len(makes))}
        self.processes: dict[str, LoopProcess] = {}
        self.loop: asyncio.AbstractEventLoop | None = None

    @staticmethod
    def name(number: int) -> str:
        return f"place:{number}"

    def sites(self) -> list[Site]:
        return [self._site(number, make) for number, make in enumerate(self._makes)]

    def _site(self, number: int, make: Callable[[], Engine]) -> Site:
        name = self.name(number)

        def launch(end: socket.socket) -> LoopProcess:
            assert self.loop is not None
            engine = make()
            self.engines[name].append(engine)
            self.processes[name] = LoopProcess(self.loop, end, engine)
            return self.processes[name]

        return Site(name, launch, b"")

    def engine(self, number: int) -> Engine:
        """The engine that serves there now."""
        return self.engines[self.name(number)][-1]

    def fake(self, number: int) -> FakeEngine:
        engine = self.engine(number)
        assert isinstance(engine, FakeEngine)
        return engine

    def kill(self, number: int) -> None:
        self.processes[self.name(number)].kill()


class RoutedEngine(RoutingEngine):
    """Over processes in the loop that it is started in."""

    def __init__(self, *makes: Callable[[], Engine], **options: float) -> None:
        self.host = Host(*makes)
        super().__init__(self.host.sites(), **options)

    async def start(self) -> None:
        self.host.loop = asyncio.get_running_loop()
        await super().start()


@asynccontextmanager
async def running(*makes: Callable[[], FakeEngine], patience_s: float = 60.0) -> AsyncIterator[Listener]:
    engine = RoutedEngine(*makes, patience_s=patience_s)
    await engine.start()
    try:
        yield Listener(engine, timeout_s=PATIENCE_S)
    finally:
        await engine.close()


def routed(listener: Listener) -> RoutedEngine:
    assert isinstance(listener.engine, RoutedEngine)
    return listener.engine


def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses, states and replacements come at once."""
    monkeypatch.setattr(keeper, "_LOOK_S", 0.02)
    monkeypatch.setattr(child, "_STATE_S", 0.005)
    monkeypatch.setattr(child_process, "_MAX_DELAY_S", 0.0)
