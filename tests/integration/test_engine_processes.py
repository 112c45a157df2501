"""Real engine processes behind their front: killed, stopped, signalled with their group, left behind."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest
from structlog.testing import capture_logs

from tests.contract.listener import Listener
from tests.support.own_session import running
from tests.support.patience import PATIENCE_S
from tests.support.polling import until
from voicegate.engine.interface import AudioReady, Cancelled, Done, EngineError, Failed
from voicegate.engine.process import keeper
from voicegate.engine.process.front import RoutingEngine
from voicegate.engine.process.keeper import Site, _Hangs, launched

MODULE = "tests.support.fake_engine_process"
TALK = "One two three, four five six. " * 4


def site(name: str, module: str = MODULE) -> Site:
    return Site(name, lambda end: launched(module, name, end, {}), b"")


@pytest.fixture
async def listener(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Listener]:
    monkeypatch.setattr(keeper, "_LOOK_S", 0.1)
    engine = RoutingEngine([site("first"), site("second")], patience_s=PATIENCE_S)
    await engine.start()
    yield Listener(engine, timeout_s=PATIENCE_S)
    await engine.close()


def pids(engine: RoutingEngine) -> list[int]:
    return [each.pid for each in engine._keepers if each.serving is not None and each.pid is not None]


async def until_whole(engine: RoutingEngine, *, num_lost: int) -> None:
    stats = partial(engine.stats)
    await until(
        lambda: stats().counters["replicas_lost"] == num_lost and stats().gauges["replica_ready"] == 2,
        timeout_s=PATIENCE_S,
    )


async def test_one_that_is_killed_and_one_that_is_stopped(listener: Listener) -> None:
    engine = listener.engine
    assert isinstance(engine, RoutingEngine)
    first, second = listener.submit("first", text=TALK), listener.submit("second", text=TALK)
    await listener.until_heard(first, second)
    before = pids(engine)
    with capture_logs() as logs:
        os.kill(before[0], signal.SIGKILL)
        assert isinstance(await listener.until_end(first), Failed)
        await until_whole(engine, num_lost=1)
        (stopped,) = [each for each in engine._keepers if each.pid == before[1]]
        os.kill(before[1], signal.SIGSTOP)
        stopped._hangs = _Hangs(0.5)  # of the others a busy machine may hear nothing for longer
        assert isinstance(await listener.until_end(second), Failed)
        await until_whole(engine, num_lost=2)
    told = [(entry["event"], entry.get("exit_status")) for entry in logs if entry["log_level"] == "error"]
    assert told == [
        ("engine_process_lost", -signal.SIGKILL),
        ("engine_process_hangs", None),
        ("engine_process_lost", -signal.SIGKILL),
    ]
    assert not {*before} & {*pids(engine)}
    third = listener.submit("third", text=TALK)
    await listener.until(third, AudioReady)
    engine.cancel(third)
    assert isinstance(await listener.until_end(third), Cancelled)
    assert isinstance(await listener.until_end(listener.submit("last", text="So.", end=True)), Done)
    left = pids(engine)
    await engine.close()
    for pid in (*before, *left):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_process_that_cannot_be_started_is_told() -> None:
    with pytest.raises(EngineError, match="no engine process has started"):
        await RoutingEngine([site("only", "tests.support.no_such_module")]).start()


# --- signals, and the end of the front --------------------------------------------------------------------

FRONT = """
import asyncio, signal, sys
import structlog
from tests.contract.listener import Listener
from tests.integration.test_engine_processes import pids, site
from voicegate.engine.process.front import RoutingEngine
from voicegate.engine.process.keeper import _Hangs

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))

async def main():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, lambda: None)
    engine = RoutingEngine([site("only")])
    await engine.start()
    listener = Listener(engine, timeout_s=60.0)
    print(*pids(engine), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        end = await listener.until_end(listener.submit(line, text=line, end=True))
        print(type(end).__name__, int(engine.stats().counters["replicas_lost"]), flush=True)
    await engine.close()

asyncio.run(main())
"""


@pytest.fixture
def front() -> Iterator["subprocess.Popen[str]"]:
    """A front in a process and a group of its own, that speaks each line of its input."""
    with running(FRONT) as process:
        yield process


def speak(process: "subprocess.Popen[str]", line: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    print(line, file=process.stdin, flush=True)
    return process.stdout.readline()


async def test_signals_to_the_whole_group_leave_the_processes_to_their_front(front: "subprocess.Popen[str]") -> None:
    assert front.stdout is not None
    assert int(await asyncio.to_thread(front.stdout.readline))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.killpg(front.pid, number)
    assert await asyncio.to_thread(speak, front, "Still here.") == "Done 0\n"
    _, errors = await asyncio.to_thread(front.communicate, timeout=PATIENCE_S)
    assert front.returncode == 0, errors
    assert [line for line in errors.splitlines() if "engine_process_ready" not in line] == []


async def test_no_process_outlives_a_front_that_is_killed(front: "subprocess.Popen[str]") -> None:
    assert front.stdout is not None
    assert int(await asyncio.to_thread(front.stdout.readline))
    front.kill()
    await asyncio.to_thread(front.communicate, timeout=PATIENCE_S)  # until all who hold its standard error have ended
