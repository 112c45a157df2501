"""The bench's strangers against a real gateway: those who come and go do, and who asks beside a flood is answered."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvloop

from tests.integration.wire_client import TIMEOUT_S, serving
from voicegate.bench.gateway.strangers import Stranger, Strangers
from voicegate.engine.fake.engine import Script


async def run_until(is_so: Callable[[], bool], *behaviours: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(behaviour) for behaviour in behaviours]
        while not is_so():  # noqa: ASYNC110 - they tell nobody
            await asyncio.sleep(0.001)
        for task in running:
            task.cancel()


async def test_visits_are_over_when_their_context_is_cancelled() -> None:
    async with serving(Script(real_time_factor=0.2)) as served:
        strangers = Strangers(served.url)
        strangers.tally.is_counting = True
        await run_until(lambda: strangers.tally.num_visits >= 20, strangers.visit(500.0, 100))
        assert strangers.tally.num_failed == 0
        assert len(served.engine.cancels) >= 20


async def test_who_asks_beside_a_flood_is_answered_and_the_flood_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.listener._FLOOD_PATIENCE_S", 0.1)
    async with serving(messages_per_s=500) as served:
        strangers = Strangers(served.url)
        tally = strangers.tally
        tally.is_counting = True
        await run_until(
            lambda: tally.num_floods_over >= 1 and len(tally.first_audio_ms) >= 2, strangers.flood(), strangers.ask()
        )


def test_who_writes_to_a_server_that_is_gone_hears_of_a_lost_connection() -> None:
    """On the bench's own loop, whose transports raise RuntimeError where asyncio's take what nobody will read."""

    async def write_to_who_is_gone() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            host, port = listening.getsockname()
            _, stranger = await asyncio.get_running_loop().create_connection(
                lambda: Stranger(urlsplit(f"ws://{host}:{port}/v1/stream")), host, port
            )
            listening.accept()[0].close()
            with pytest.raises(ConnectionError):
                await stranger.until_greeted()
            with pytest.raises(ConnectionError):
                stranger.write(b"still there?")
            with pytest.raises(ConnectionError):
                await stranger.write_in_turn(b"and now?")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(write_to_who_is_gone())


async def test_who_finds_no_room_was_refused() -> None:
    async with serving(max_sockets=1) as served, served.client():
        strangers = Strangers(served.url)
        strangers.tally.is_counting = True
        await run_until(lambda: strangers.tally.num_refused >= 3, strangers.visit(100.0, 10))
        assert strangers.tally.num_visits == strangers.tally.num_failed == 0
        assert strangers.tally.num_begun >= 3


async def test_who_is_not_let_in_for_another_reason_has_failed() -> None:
    async with serving() as served:
        strangers = Strangers(f"{served.url}/nowhere")
        strangers.tally.is_counting = True
        await run_until(lambda: strangers.tally.num_failed >= 3, strangers.visit(100.0, 10))
        assert strangers.tally.num_visits == strangers.tally.num_refused == 0
