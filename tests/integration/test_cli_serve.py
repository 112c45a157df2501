"""`voicegate serve` as a process: its ready line, and its end by a signal. The engine is the FakeEngine."""

import asyncio
import os
import sys
from collections.abc import Iterator

import pytest

from tests.unit.clients.deadline import deadline
from voicegate.clients.python.client import connect

pytestmark = pytest.mark.integration

SERVE = """
import sys
from voicegate.engine.fake.engine import FakeEngine
from voicegate.gateway.cli import local
from voicegate.gateway.cli.main import run
local.build_engine = lambda _config, _on_progress: FakeEngine()
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    with deadline():
        yield


async def start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SERVE,
        "serve",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "VOICEGATE_PORT": "0", "VOICEGATE_LOG_LEVEL": "error"},
    )


async def test_ready_line_and_sigterm() -> None:
    process = await start("--log-level", "info", "--drain-s", "1")
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    assert line.startswith("voicegate is ready: ws://127.0.0.1:")
    assert line.endswith("/v1/stream, model fake, voices hum, drone\n")
    async with connect(line.split()[3].rstrip(",")) as gate:
        assert [packet async for packet in gate.speak("Hello")]
    process.terminate()
    _, log = await process.communicate()
    assert process.returncode == 0
    assert b'"event":"starting"' in log


async def test_a_port_that_cannot_be_had_is_one_line() -> None:
    process = await start("--host", "192.0.2.1")
    out, log = await process.communicate()
    assert (process.returncode, out) == (1, b"")
    assert log.decode().startswith("voicegate: cannot listen on 192.0.2.1:0")
    assert log.count(b"\n") == 1
