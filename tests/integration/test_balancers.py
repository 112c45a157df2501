"""Gateways behind deploy/'s HAProxy and nginx: a rolling restart loses nothing, who comes back finds its own."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import orjson
import pytest

from tests.integration.balancers import (
    Balancer,
    Fleet,
    haproxy,
    haproxy_in_a_cluster,
    nginx,
    running_fleet,
    until_weight,
)
from tests.integration.cluster_dns import cluster_dns
from tests.integration.wire_client import TIMEOUT_S
from tests.support.programs import required
from voicegate.clients.python.client import Gate, connect
from voicegate.clients.python.context import Context
from voicegate.clients.python.errors import ContextFailed
from voicegate.engine.fake.engine import Script
from voicegate.protocol.messages import Done

# A quarter of a second to make, and four times that to hear.
TEXT, SCRIPT = "Seventeen letters.", Script(real_time_factor=0.25, max_utterances=16)
Start = Callable[[Fleet, Path], AbstractAsyncContextManager[Balancer]]
BALANCERS = pytest.mark.parametrize("start", [haproxy, nginx])


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with asyncio.timeout(TIMEOUT_S), running_fleet(SCRIPT) as fleet:
        yield fleet


async def say(gate: Gate) -> Context:
    context = await gate.open()
    await context.say(TEXT)
    await context.end()
    return context


async def hear(context: Context) -> list[bytes]:
    """All that is still to come of it."""
    return [packet async for audio in context for packet in audio.packets]


def home_of(gate: Gate) -> str:
    return gate.ready.session.partition(".")[0]


@BALANCERS
async def test_a_rolling_restart_under_load_loses_nothing(start: Start, fleet: Fleet, tmp_path: Path) -> None:
    """A context whose text comes behind the word that its gateway goes is told so, unheard, and opened elsewhere."""
    heard: list[int] = []
    unheard: list[tuple[str, int]] = []
    is_over = asyncio.Event()

    async def listen(url: str) -> None:
        async with connect(url) as gate:
            while not is_over.is_set():
                context, packets = await say(gate), []
                try:
                    async for audio in context:
                        packets += audio.packets
                except ContextFailed as error:
                    unheard.append((error.code, len(packets)))
                    continue
                assert isinstance(context.result, Done)
                assert context.result.packets == len(packets)
                heard.append(len(packets))

    async with start(fleet, tmp_path) as balancer, asyncio.TaskGroup() as tasks:
        for _ in range(9):
            tasks.create_task(listen(balancer.url))
        for host in fleet.hosts:
            await host.engine.until(lambda host=host: host.engine.num_live > 1)  # type: ignore[misc]
            await host.stop()
            await host.start()
        is_over.set()
    assert set(unheard) <= {("overloaded", 0)}
    assert len(heard) > 9
    assert len(set(heard)) == 1, "the same text is the same speech, whole"


@BALANCERS
async def test_the_least_loaded_has_the_next_and_who_comes_back_finds_its_own(
    start: Start, fleet: Fleet, tmp_path: Path
) -> None:
    async with start(fleet, tmp_path) as balancer, AsyncExitStack() as connected:
        gates = [await connected.enter_async_context(connect(balancer.url)) for _ in range(6)]
        assert sorted(map(home_of, gates)) == ["gw1", "gw1", "gw2", "gw2", "gw3", "gw3"]
        contexts = [await say(gate) for gate in gates]
        for gate, context in zip(gates, contexts, strict=True):
            assert (await anext(aiter(context))).packets
            assert gate._link is not None
            gate._link._line._socket.transport.abort()
        rest = await asyncio.gather(*map(hear, contexts))
        assert [gate.num_resumed for gate in gates] == [1] * 6
        assert len({len(packets) for packets in rest}) == 1
        assert all(isinstance(context.result, Done) for context in contexts)

        capacity = await asyncio.to_thread(fetch, f"{balancer.url}/v1/capacity".replace("ws:", "http:"))
        assert capacity["accepts"] is True


def fetch(url: str) -> dict[str, Any]:
    with urlopen(url, timeout=TIMEOUT_S) as answer:
        found: dict[str, Any] = orjson.loads(answer.read())
    return found


@pytest.mark.soak
@BALANCERS
async def test_a_session_whose_gateway_is_gone_is_told_so_by_another(
    start: Start, fleet: Fleet, tmp_path: Path
) -> None:
    """Not refused, and not left to try until its time is over."""
    async with start(fleet, tmp_path) as balancer:
        await fleet.hosts[0].stop()
        async with connect(f"{balancer.url}/v1/stream?session=gw1.0123456789abcdef") as gate:
            assert home_of(gate) in {"gw2", "gw3"}
        await fleet.hosts[0].start()


@pytest.mark.soak
async def test_haproxy_gives_most_to_whom_has_most_room(fleet: Fleet, tmp_path: Path) -> None:
    async with haproxy(fleet, tmp_path) as balancer, AsyncExitStack() as connected:
        direct = await connected.enter_async_context(connect(fleet.hosts[0].gateway.url))
        for _ in range(SCRIPT.max_utterances):
            context = await direct.open()
            await context.say("Said to a gateway itself, past the balancer, and without an end")
        await until_weight(balancer, "gw1", lambda weight: 0 < weight < 50)
        gates = [await connected.enter_async_context(connect(balancer.url)) for _ in range(6)]
        homes = list(map(home_of, gates))
        assert homes.count("gw1") <= 1
        assert {"gw2", "gw3"} <= set(homes)


async def test_haproxy_finds_pods_by_the_names_that_a_clusters_dns_knows(fleet: Fleet, tmp_path: Path) -> None:
    environment = {"POD_NAMESPACE": "speech", "CLUSTER_DOMAIN": "cluster.local"}
    addresses = {"voicegate-0.voicegate-pods.speech.svc.cluster.local": bytes([127, 0, 0, 1])}
    async with (
        cluster_dns(addresses) as dns_port,
        haproxy_in_a_cluster(fleet, tmp_path, dns_port=dns_port, environment=environment) as balancer,
    ):
        url = balancer.url.replace("ws:", "http:") + "/readyz"
        while await asyncio.to_thread(_status, url) != 200:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.05)
        async with connect(balancer.url + "/v1/stream") as gate:
            assert home_of(gate) == fleet.hosts[0].name
            assert await hear(await say(gate))


def _status(url: str) -> int:
    try:
        with urlopen(url) as answer:
            status: int = answer.status
    except HTTPError as error:
        return error.code
    return status


def test_haproxy_finds_nothing_wrong_with_the_file() -> None:
    path = Path(__file__).parents[2] / "deploy/haproxy/haproxy.cfg"
    done = subprocess.run([required("haproxy"), "-c", "-f", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr.upper()
