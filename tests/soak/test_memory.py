"""Utterance after utterance: memory is what it was after the first of them."""

import asyncio
import os

import pytest

from tests.integration.wire_client import WireClient, connect_to
from tests.soak.keeping import Keep
from tests.soak.memory import Holdings, held
from tests.support.tiny_engine import tiny_engine
from voicegate.engine.fake.engine import FakeEngine
from voicegate.engine.interface import Engine
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.run import running_gateway
from voicegate.protocol import messages as wire

# Pieces that allocators cannot give back.
_SLACK_BYTES = 12 * 2**20
_SLACK_OBJECTS = 500  # what is just ending when it is counted; two of each utterance in the shortest run would show


async def turn(client: WireClient, number: int) -> None:
    """In every way in which a context ends well."""
    context = f"turn-{number}"
    match number % 4:
        case 0:
            await client.speak(context, "Yes.")
            await client.until(wire.Done, context)
        case 1:
            await client.speak(context, "No.", format=wire.Format(codec="pcm_s16le"))
            await client.until(wire.Done, context)
        case 2:
            await client.send(wire.Open(context), wire.Text(context, "Well, "), wire.Flush(context), wire.End(context))
            await client.until(wire.Done, context)
        case _:
            await client.send(wire.Open(context), wire.Text(context, "Perhaps. "), wire.Cancel(context))
            await client.until(wire.Cancelled, context)
    client.heard.clear()
    client.arrivals.clear()


async def talk(url: str, numbers: range) -> None:
    async with connect_to(url) as client:
        for number in numbers:
            await turn(client, number)


async def growth(engine: Engine, *, num_warm_up: int, num_utterances: int, num_clients: int) -> Holdings:
    """Over so many utterances, behind so many that fill every pool."""

    async def talk_all(url: str, number: int) -> None:
        share = number // num_clients
        async with asyncio.TaskGroup() as clients:
            for client in range(num_clients):
                clients.create_task(talk(url, range(client * share, (client + 1) * share)))
        if isinstance(engine, FakeEngine):
            engine.requests.clear()
            engine.cancels.clear()

    async with running_gateway(GatewayConfig(), engine) as url:
        await talk_all(url, num_warm_up)
        before = held()
        await talk_all(url, num_utterances)
        return held().since(before)


async def test_a_few_hundred_utterances_leave_nothing() -> None:
    grown = await growth(FakeEngine(), num_warm_up=100, num_utterances=400, num_clients=4)
    assert grown.num_bytes < _SLACK_BYTES
    assert grown.num_objects < _SLACK_OBJECTS


@pytest.mark.soak
async def test_twenty_thousand_utterances_leave_nothing(keep: Keep) -> None:
    grown = await growth(FakeEngine(), num_warm_up=2000, num_utterances=20_000, num_clients=20)
    keep(utterances=20_000, growth_mib=round(grown.num_bytes / 2**20, 2), growth_objects=grown.num_objects)
    assert grown.num_bytes < _SLACK_BYTES
    assert grown.num_objects < _SLACK_OBJECTS


@pytest.mark.soak
async def test_two_hundred_utterances_of_the_tiny_model_leave_nothing(keep: Keep) -> None:
    """On a CPU oneDNN keeps a kernel for each shape that it meets, up to 1024: 60 MiB, which come by and by."""
    assert os.environ.get("ONEDNN_PRIMITIVE_CACHE_CAPACITY") == "1", "as `make soak` sets it before torch is there"
    grown = await growth(tiny_engine(), num_warm_up=200, num_utterances=200, num_clients=4)
    keep(utterances=200, growth_mib=round(grown.num_bytes / 2**20, 2), growth_objects=grown.num_objects)
    assert grown.num_bytes < _SLACK_BYTES
    assert grown.num_objects < _SLACK_OBJECTS
