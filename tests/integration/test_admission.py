"""More offered than there is room for: who was let in hears nothing of it, and the others are told at once."""

import json
from collections.abc import Sequence

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.integration.raw_client import get
from tests.integration.wire_client import Served, WireClient, serving
from voicegate.engine.fake.engine import Script
from voicegate.protocol import messages as wire

pytestmark = pytest.mark.integration

CAPACITY, NUM_WAITING, NUM_SOCKETS = 8, 4, 3
NUM_OFFERED = 3 * CAPACITY
FIRST, SECOND = "as many words as fit ", "and the rest of them"
NUM_CHARACTERS = sum(char.isalnum() for char in FIRST + SECOND)


async def offer(clients: Sequence[WireClient]) -> list[wire.Error]:
    """Every context on every socket begins to speak, one after the other. Returns what was refused."""
    refusals: list[wire.Error] = []
    for n in range(NUM_OFFERED):
        client = clients[n % len(clients)]
        await client.send(wire.Open(context=f"c{n}"), wire.Text(f"c{n}", FIRST), wire.Ping(n))
        while not isinstance(message := await client.receive(), wire.Pong):
            if isinstance(message, wire.Error):
                refusals.append(message)
    return refusals


async def finish(client: WireClient, context: str) -> None:
    await client.send(wire.Text(context, SECOND), wire.End(context))


async def test_three_times_the_capacity_hurts_nobody_who_was_let_in() -> None:
    script = Script(max_utterances=CAPACITY)
    async with serving(script, waiting_contexts=NUM_WAITING, waiting_s=60.0) as served:
        async with served.client() as one, served.client() as two, served.client() as three:
            clients = (one, two, three)
            refusals = await offer(clients)
            num_let_in = CAPACITY + NUM_WAITING
            assert [error.context for error in refusals] == [f"c{n}" for n in range(num_let_in, NUM_OFFERED)]
            assert {(error.code, error.fatal) for error in refusals} == {("overloaded", True)}
            assert all(isinstance(error.retry_after_ms, int) for error in refusals)
            await check_that_balancers_hear_of_it(served)
            # All who were let in, and those who wait for them to finish, say all that they have to say.
            for n in range(num_let_in):
                await finish(clients[n % NUM_SOCKETS], f"c{n}")
            for client in clients:
                ends = [await client.until(wire.Done) for _ in range(num_let_in // NUM_SOCKETS)]
                assert {end.audio_ms for end in ends} == {NUM_CHARACTERS * 60}
        assert (await get(served.url, "/readyz"))[0] == 200


async def num_waiting(served: Served) -> int:
    waiting: int = json.loads((await get(served.url, "/v1/capacity"))[2])["waiting"]
    return waiting


async def check_that_balancers_hear_of_it(served: Served) -> None:
    capacity = json.loads((await get(served.url, "/v1/capacity"))[2])
    assert not capacity["accepts"]
    assert (capacity["utterances"], capacity["max_utterances"]) == (CAPACITY + NUM_WAITING, CAPACITY)
    assert (capacity["waiting"], capacity["max_waiting"]) == (NUM_WAITING, NUM_WAITING)
    status, headers, _ = await get(served.url, "/readyz")
    assert (status, "Retry-After" in headers) == (503, True)
    with pytest.raises(InvalidStatus) as caught:
        await connect(served.url)
    assert caught.value.response.status_code == 503
    assert int(caught.value.response.headers["Retry-After"]) > 0


async def test_who_finds_no_room_in_time_is_told() -> None:
    async with serving(Script(max_utterances=1), waiting_s=0.05) as served, served.client() as client:
        await client.send(wire.Open(context="speaks"), wire.Text("speaks", FIRST))
        await served.until(lambda engine: engine.num_live == 1)
        await client.speak("waits", "in vain")
        error = await client.until(wire.Error)
        assert (error.code, error.context, error.fatal) == ("overloaded", "waits", True)
        assert isinstance(error.retry_after_ms, int)
        await finish(client, "speaks")
        assert (await client.until(wire.Done)).audio_ms == NUM_CHARACTERS * 60


async def test_a_short_wait_is_not_noticed() -> None:
    async with serving(Script(max_utterances=1), waiting_s=60.0) as served, served.client() as client:
        await client.send(wire.Open(context="speaks"), wire.Text("speaks", FIRST))
        await served.until(lambda engine: engine.num_live == 1)
        await client.speak("waits", "not in vain")
        await client.send(wire.Cancel("speaks"))
        done = await client.until(wire.Done, "waits")
        assert done.audio_ms == 9 * 60
        assert done.timing.queue_ms is not None


async def test_a_socket_that_closes_leaves_the_line() -> None:
    async with serving(Script(max_utterances=1), waiting_s=60.0) as served, served.client() as client:
        await client.send(wire.Open(context="speaks"), wire.Text("speaks", FIRST))
        await served.until(lambda engine: engine.num_live == 1)
        async with served.client() as gone:
            await gone.speak("waits", "and goes")
            await gone.send(wire.Ping())
            await gone.until(wire.Pong)
            assert await num_waiting(served) == 1
        while await num_waiting(served) > 0:
            pass  # the server hears of the end after the client
        await client.speak("next", "takes its place")
        await client.send(wire.Cancel("speaks"))
        await client.until(wire.Done, "next")
        assert len(served.engine.requests) == 2
