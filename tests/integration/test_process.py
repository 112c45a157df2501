"""The server as a process: signals, its log, and the limits that it runs under."""

import asyncio
import contextlib
import json
import resource
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.integration.processes import python
from tests.integration.raw_client import get
from tests.integration.wire_client import TIMEOUT_S, closed_with, connect_to
from voicegate.gateway.server.entrance.descriptors import OWN_FILES, SPARE_CONNECTIONS
from voicegate.gateway.server.server import EXIT_FAILED, EXIT_OK
from voicegate.protocol import messages as wire

SERVER = """
import json
import sys
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.gateway.config import from_environment
from voicegate.gateway.logs import configure_logs
from voicegate.gateway.server.run import run_gateway
configure_logs("info", "json")
script = Script(faults={0: Fault(FaultKind.STALL)})
sys.exit(run_gateway(from_environment({}, {"port": 0, **json.loads(sys.argv[1])}), FakeEngine(script)))
"""


LOADING_SERVER = """
import asyncio
import sys
import threading
from voicegate.engine.fake.engine import FakeEngine
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.logs import configure_logs
from voicegate.gateway.server.run import run_gateway


class Loading(FakeEngine):
    async def start(self):
        self.thread = threading.Thread(target=threading.Event().wait, daemon=True)
        self.thread.start()
        print("loading", flush=True)
        await asyncio.get_running_loop().create_future()

    async def close(self):
        await asyncio.to_thread(self.thread.join)


configure_logs("info", "json")
sys.exit(run_gateway(GatewayConfig(port=0), Loading()))
"""


HANGING_SERVER = """
import asyncio
import sys
from voicegate.engine.fake.engine import FakeEngine
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.logs import configure_logs
from voicegate.gateway.server.run import run_gateway
from voicegate.engine.interface import EngineStats


class Hanging(FakeEngine):
    pulse = 0

    async def close(self):
        await asyncio.get_running_loop().create_future()


class HangingInPart(Hanging):
    pulse = None

    def stats(self):
        return EngineStats(hangs={"cuda:0": False, "cuda:1": True})


configure_logs("info", "json")
sys.exit(run_gateway(GatewayConfig(port=0, engine_timeout_s=1), globals()[sys.argv[1]]()))
"""


@contextlib.asynccontextmanager
async def server_process(
    prepare: Callable[[], None] | None = None, **settings: Any
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str, list[dict[str, Any]]]]:
    """`prepare` runs in the process before the server does."""
    words = ("-c", SERVER, json.dumps(settings))
    async with python(*words, within_s=TIMEOUT_S, stderr=asyncio.subprocess.PIPE, preexec_fn=prepare) as process:
        assert process.stderr is not None
        lines: list[dict[str, Any]] = []
        while not lines or lines[-1]["event"] != "ready":
            line = await process.stderr.readline()
            assert line, lines
            lines.append(json.loads(line))
        (url,) = [line["url"] for line in lines if line["event"] == "listening"]
        yield process, url, lines
        lines += [json.loads(line) for line in (await process.stderr.read()).splitlines()]
        await process.wait()


async def test_who_asks_and_resets_the_connection_at_once_is_no_fault_of_ours() -> None:
    upgrade = (
        "GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: YWFhYWFhYWFhYWFhYWFhYQ==\r\n\r\n"
    )
    speech = 'POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18\r\n\r\n{"input": "hello"}'
    async with server_process() as (process, url, lines):
        port = urlsplit(url).port
        for head in (upgrade, speech) * 30:
            with socket.create_connection(("127.0.0.1", port)) as peer:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.sendall(head.encode())
        async with connect_to(url) as client:
            await client.send(wire.Open("a"))
            await client.until(wire.Opened)
        process.terminate()
    assert [line for line in lines if line["level"] in ("error", "critical")] == []


async def test_sigterm_ends_the_process_and_no_user_text_is_in_its_log() -> None:
    async with server_process() as (process, url, lines), connect_to(url) as client:
        await client.send(wire.Open(context="ctx"), wire.Text("ctx", "sensitive words"), wire.Cancel("ctx"))
        await client.until(wire.Cancelled)
        await client.speak("ctx2", "sensitive words")
        heard = await client.until_done("ctx2")
        assert len(heard.decode()) == 14 * 60 * 48
        process.terminate()
        assert await closed_with(client) == 1001
    assert process.returncode == EXIT_OK, lines
    events = [line["event"] for line in lines]
    assert [events.count(event) for event in ("starting", "ready", "draining", "stopped")] == [1, 1, 1, 1]
    ends = [line for line in lines if line["event"] in ("context done", "context cancelled")]
    assert [line["context"] for line in ends] == ["ctx", "ctx2"]
    assert all(line["session"] for line in ends)
    assert "sensitive" not in json.dumps(lines)


async def test_sigterm_while_loading_does_not_wait_for_the_load() -> None:
    pipes = {"stderr": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    async with python("-c", LOADING_SERVER, within_s=TIMEOUT_S, **pipes) as process:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"loading\n"
        process.terminate()
        _, stderr = await process.communicate()
    assert process.returncode == EXIT_OK, stderr.decode()
    events = [json.loads(line)["event"] for line in stderr.splitlines()]
    assert events[-2:] == ["stopped while the engine was loading", "stopped"]


@pytest.mark.parametrize(("engine", "event"), [("Hanging", "engine hangs"), ("HangingInPart", "ready")])
async def test_sigterm_does_not_wait_for_an_engine_that_hangs(engine: str, event: str) -> None:
    """Nor for one of whose devices one does: what was launched there may hold its thread at the end."""
    async with python("-c", HANGING_SERVER, engine, within_s=TIMEOUT_S, stderr=asyncio.subprocess.PIPE) as process:
        assert process.stderr is not None
        while json.loads(await process.stderr.readline())["event"] != event:
            pass
        process.terminate()
        _, stderr = await process.communicate()
    assert process.returncode == EXIT_OK, stderr.decode()
    assert json.loads(stderr.splitlines()[-1])["event"] == "stopped"


async def test_systemd_hears_of_its_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        told = []

        async def hear(sign: bytes) -> None:
            async with asyncio.timeout(TIMEOUT_S):
                while sign not in told:
                    told.append(await asyncio.get_running_loop().sock_recv(manager, 100))

        async with server_process() as (process, _, lines):
            await hear(b"WATCHDOG=1")
            await hear(b"READY=1")
            process.terminate()
            await hear(b"STOPPING=1")
    assert told[-1] == b"STOPPING=1"
    assert process.returncode == EXIT_OK, lines


async def test_the_second_sigint_exits_now() -> None:
    async with server_process() as (process, url, _), connect_to(url) as client:
        await client.speak("a", "never said")
        await client.until(wire.Opened)
        process.send_signal(2)
        await client.until(wire.Draining)
        process.send_signal(2)
        assert await process.wait() == -2


async def test_a_log_that_nobody_reads_holds_nothing_up() -> None:
    async with server_process(messages_per_s=100_000) as (process, url, lines), connect_to(url) as client:
        for n in range(4000):  # a line each, so ten times what a pipe and its reader take
            await client.send(wire.Open(context=f"c{n}", voice="nobody"))
        for _ in range(4000):
            assert isinstance(await client.receive(), wire.Error)
        await client.send(wire.Open(context="ctx"), wire.Text("ctx", "hi "))
        await client.until(wire.Opened)
        await client.send(wire.Cancel("ctx"))
        await client.until(wire.Cancelled)
        process.terminate()
        assert await closed_with(client) == 1001
    assert process.returncode == EXIT_OK, lines
    assert len(lines) > 1000


async def test_a_limit_on_open_files_is_kept_and_told() -> None:
    num_sockets = 5
    num_files = num_sockets + SPARE_CONNECTIONS + OWN_FILES

    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (num_files - 3, num_files))

    async with server_process(limit_files, max_sockets=100) as (process, url, lines):
        told = [line for line in lines if line["event"] == "fewer sockets than asked for"]
        assert [(line["sockets"], line["asked"], line["open_files"]) for line in told] == [(5, 100, num_files)]
        async with contextlib.AsyncExitStack() as sockets:
            for _ in range(num_sockets):
                await sockets.enter_async_context(connect_to(url))
            with pytest.raises(InvalidStatus) as caught:
                await connect(url)
            assert caught.value.response.status_code == 503
            assert (await get(url, "/healthz"))[0] == 200
            assert (await get(url, "/readyz"))[0] == 503
        process.terminate()
    assert process.returncode == EXIT_OK, lines
    assert [line["reason"] for line in lines if line["event"] == "a socket is refused"]


async def test_no_room_for_a_single_socket_is_an_error_with_its_remedy() -> None:
    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (SPARE_CONNECTIONS + OWN_FILES,) * 2)

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, "{}", stderr=asyncio.subprocess.PIPE, preexec_fn=limit_files
    )
    _, stderr = await process.communicate()
    assert process.returncode == EXIT_FAILED, stderr.decode()
    assert "ulimit -n" in json.loads(stderr.splitlines()[-1])["reason"]
