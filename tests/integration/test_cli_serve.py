"""`voicegate serve` as a process: its ready line, and its end by a signal. The engine is the FakeEngine."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.integration.processes import python
from tests.unit.clients.deadline import deadline
from voicegate.clients.python.client import connect

pytestmark = pytest.mark.integration

# In place of the module that imports torch, which takes longer than all the rest.
SERVE = """
import sys
import types
from voicegate.engine.fake.engine import FakeEngine
build = types.SimpleNamespace(create_engine=lambda _config, on_progress: FakeEngine())
sys.modules["voicegate.engine.loading.build"] = build
from voicegate.gateway.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    with deadline():
        yield


@asynccontextmanager
async def serving(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    environment = {**os.environ, "VOICEGATE_PORT": "0", "VOICEGATE_LOG_LEVEL": "error"}
    async with python("-c", SERVE, "serve", *arguments, env=environment, **pipes) as process:
        yield process


async def test_ready_line_and_sigterm() -> None:
    async with serving("--log-level", "info", "--drain-s", "1") as process:
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
    async with serving("--host", "192.0.2.1") as process:
        out, log = await process.communicate()
    assert (process.returncode, out) == (1, b"")
    assert log.decode().startswith("voicegate: cannot listen on 192.0.2.1:0")
    assert log.count(b"\n") == 1
