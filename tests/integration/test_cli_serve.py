"""`voicegate serve` as a process: its ready line, its end by a signal, and an engine process that dies beside it.

But for the last the engine is the FakeEngine.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.integration.processes import python
from tests.integration.wire_client import WireClient, connect_to
from tests.support.ports import reserved_port
from tests.support.quick_model import quick_model
from voicegate.clients.bench.usage import children
from voicegate.clients.python.client import Gate, connect
from voicegate.clients.python.errors import ConnectFailed
from voicegate.gateway.cli import serve
from voicegate.protocol import messages as wire

pytestmark = pytest.mark.usefixtures("no_hang")

# In place of the module that imports torch, which takes longer than all the rest.
SERVE = """
import sys
import types
from voicegate.engine.fake.engine import FakeEngine
build = types.SimpleNamespace(create_engine=lambda _config, on_progress: FakeEngine())
sys.modules["voicegate.engine.load.build"] = build
from voicegate.gateway.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


@asynccontextmanager
async def serving(*arguments: str, stdin: int | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
    pipes = {"stdin": stdin, "stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    environment = {**os.environ, "VOICEGATE_PORT": "0", "VOICEGATE_LOG_LEVEL": "error"}
    async with python("-c", SERVE, "serve", *arguments, env=environment, **pipes) as process:
        yield process


async def ready_line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode()


def url_in(line: str) -> str:
    return line.split()[3].rstrip(",")


async def test_ready_line_and_sigterm() -> None:
    async with serving("--log-level", "info", "--drain-s", "1", "--device", "cpu") as process:
        line = await ready_line(process)
        assert line.startswith("voicegate is ready: ws://127.0.0.1:")
        assert line.endswith("/v1/stream, model fake, voices hum, drone\n")
        assert await ready_line(process) == f"Open {serve.page_of(url_in(line))}\n"
        async with connect(url_in(line)) as gate:
            assert [packet async for packet in gate.speak("Hello")]
        process.terminate()
        _, log = await process.communicate()
    assert process.returncode == 0, log.decode()
    (starting,) = [json.loads(line) for line in log.splitlines() if b'"event":"starting"' in line]
    assert starting.items() >= {"port": 0, "drain_s": 1.0, "device": "cpu"}.items()
    assert "lead_ms" not in starting, "what is as by default is told at debug alone"


async def test_a_reload_of_nothing_changes_nothing() -> None:
    async with serving("--log-level", "info", stdin=asyncio.subprocess.DEVNULL) as process:
        async with connect(url_in(await ready_line(process))) as gate:
            process.send_signal(signal.SIGHUP)
            assert [packet async for packet in gate.speak("Hello")]
        process.terminate()
        _, log = await process.communicate()
    assert process.returncode == 0, log.decode()
    assert b"nothing to read again" in log


async def test_a_reload_that_is_asked_for_during_the_start_follows_it(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.touch()
    async with serving("--log-level", "info", "--api-keys-file", str(keys)) as process:
        assert process.stderr is not None
        await process.stderr.readuntil(b'"event":"starting"')
        process.send_signal(signal.SIGHUP)
        await process.stderr.readuntil(b"keys are read again")
        process.terminate()
        _, log = await process.communicate()
    assert process.returncode == 0, log.decode()


async def test_the_first_process_of_a_container_may_be_stopped_before_it_serves() -> None:
    """To that one the kernel gives no signal that it does not handle, as here to one that ignores it."""
    program = """
import os
import signal
import sys
import types
class Importing(types.ModuleType):
    def __getattr__(self, name):
        print("importing", flush=True)
        while True:
            signal.pause()
sys.modules["voicegate.engine.load.build"] = Importing("build")
from voicegate.gateway.cli.main import run
os.getpid = lambda: 1
signal.signal(signal.SIGTERM, signal.SIG_IGN)
run(["serve", "--device", "cpu"])
"""
    async with python("-c", program, within_s=60, stdout=asyncio.subprocess.PIPE) as process:
        assert await ready_line(process) == "importing\n"
        process.terminate()
        assert await process.wait() == 128 + signal.SIGTERM


async def test_started_without_standard_streams_it_serves_and_ends_in_peace(tmp_path: Path) -> None:
    script = tmp_path / "serve.py"
    by_its_own_door = SERVE.replace("gateway.cli.main import run", "__main__ import main")
    script.write_text(by_its_own_door.replace("run(sys.argv[1:])", "main()"))
    with reserved_port() as port:
        words = (sys.executable, str(script), "serve", "--port", str(port), "--log-level", "error")
        process = await asyncio.create_subprocess_exec("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *words)
        gate = await connected(f"ws://127.0.0.1:{port}")
        assert [packet async for packet in gate.speak("Hello")]
        await gate.close()
        process.terminate()
        assert await process.wait() == 0


async def connected(url: str) -> Gate:
    """As soon as somebody is there."""
    while True:
        with suppress(ConnectFailed):
            return await connect(url).__aenter__()
        await asyncio.sleep(0.05)


async def test_a_terminal_that_closes_ends_it_in_peace() -> None:
    ours, theirs = os.openpty()
    try:
        async with serving("--log-level", "info", stdin=theirs) as process:
            assert await ready_line(process)
            process.send_signal(signal.SIGHUP)
            _, log = await process.communicate()
    finally:
        os.close(ours)
        os.close(theirs)
    assert process.returncode == 0, log.decode()
    assert b'"event":"stopped"' in log


async def test_the_one_engine_in_a_process_of_its_own_may_die_beneath_a_socket(tmp_path: Path) -> None:
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    words = ("-m", "voicegate", "serve", "--port", "0", "--engine-process", "own", "--device", "cpu")
    words = (*words, "--model-dir", str(quick_model(tmp_path / "model")))
    # A busy machine may not get to the engine for a while.
    async with python(*words, "--threads", "1", "--engine-timeout-s", "60", **pipes) as process:
        async with connect_to(url_in(await ready_line(process))) as client:
            await client.speak("first", "So it is said, and said again, and said once more. " * 4)
            await client.until(wire.Alignment)
            (engine,) = [pid for pid in children(process.pid) if "engine_process" in command_of(pid)]
            os.kill(engine, signal.SIGKILL)
            error = await client.until(wire.Error)
            assert (error.context, error.code) == ("first", "engine_failed")
            # The socket stays; whoever comes before the next process is told to come again.
            while not await was_spoken(client, "So it is."):
                pass
        process.terminate()
        _, log = await process.communicate()
    assert process.returncode == 0, log.decode()
    events = [json.loads(entry)["event"] for entry in log.splitlines()]
    assert (events.count("engine_process_lost"), events.count("engine_process_ready")) == (1, 2)


async def was_spoken(client: WireClient, text: str) -> bool:
    await client.speak("next", text)
    while not isinstance(message := await client.receive(), wire.Done | wire.Error):
        pass
    assert isinstance(message, wire.Done) or message.code == "overloaded"
    return isinstance(message, wire.Done)


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode()


async def test_a_port_that_cannot_be_had_is_one_line() -> None:
    async with serving("--host", "192.0.2.1") as process:
        out, log = await process.communicate()
    assert (process.returncode, out) == (1, b""), log.decode()
    assert log.decode().startswith("voicegate: cannot listen on 192.0.2.1:0")
    assert log.count(b"\n") == 1
