"""HAProxy's answers: how much of the work a server should have, and when none."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from tests.integration.wire_client import running
from voicegate.engine.fake.engine import FakeEngine
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.agent import agent_line
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.server import Gateway
from voicegate.gateway.server.status import Load, Status


def load(*, utterances: int = 0, room: int = 10, sockets: int = 0) -> Load:
    return Load(sockets=sockets, max_sockets=100, utterances=utterances, room=room)


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (Status(None, None, load()), "ready up 100%"),
        (Status(None, None, load(utterances=80, room=20)), "ready up 100%"),
        (Status(None, None, load(utterances=195, room=5)), "ready up 25%"),
        (Status(None, None, load(sockets=96)), "ready up 40%"),
        (Status(None, None, load(utterances=500, room=0)), "ready up 1%"),  # the next may wait in line
        (Status(None, None, load(sockets=100)), "drain"),
        (Status("draining", None, load()), "drain"),
        (Status("warming up", None, load()), "drain"),
        (Status("the engine hangs", None, load(), hang="the engine hangs"), "down"),
    ],
)
def test_words_and_shares(status: Status, line: str) -> None:
    assert agent_line(status) == line


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_it_is_told_to_whoever_connects_and_says_nothing(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """By `voicegate serve`'s loop, whose transports are no asyncio.Transport, and by asyncio's."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(told_to_whoever_connects())


async def told_to_whoever_connects() -> None:
    async with running(FakeEngine(), agent_port=0) as served:
        port = served.gateway.agent_port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(reader.read(), 10) == b"ready up 100%\n"
        writer.close()
        with pytest.raises(GatewayError, match=f"127.0.0.1:{port} for agent-check.*--agent-port"):
            await Gateway(GatewayConfig(port=0, agent_port=port), FakeEngine()).serve_until(asyncio.Event())
