"""More offered than there is room for: who was let in hears nothing of it, and the others are told at once."""

import asyncio
import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.integration.raw_client import get
from tests.integration.wire_client import Served, WireClient, connect_to, serving
from voicegate.engine.fake.engine import FakeEngine, Script
from voicegate.engine.interface import UtteranceId
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.run import running_gateway
from voicegate.protocol import messages as wire

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


# --- an engine whose time all share -------------------------------------------------------------------------


class SharedEngine(FakeEngine):
    """Makes one chunk of one utterance a turn, of whoever has waited for longest. Its turns are its clock.

    A listener plays a chunk in `CAPACITY` turns: so many streams, and no more, it keeps from an underrun.
    """

    def __init__(self, *, max_utterances: int) -> None:
        super().__init__(Script(max_utterances=max_utterances))
        self.num_turns = 0
        self.turns: dict[UtteranceId, list[int]] = defaultdict(list)  # at which each had its chunks

    def _step(self) -> float | None:
        ready = [each for each in self._live.values() if each.speech.has_work]
        if not ready:
            return None
        utterance = min(ready, key=self._last_turn)
        self.num_turns += 1
        self.turns[utterance.speech.request.utterance_id].append(self.num_turns)
        self._advance(utterance)
        return 0.0

    def push_text(self, utterance_id: UtteranceId, text: str) -> None:
        super().push_text(utterance_id, text)
        if utterance_id not in self.turns:
            self.turns[utterance_id] = [self.num_turns]  # from here on it waits

    def _last_turn(self, utterance: Any) -> int:
        return self.turns[utterance.speech.request.utterance_id][-1]

    @property
    def num_gaps(self) -> int:
        """Chunks that came after their listener had played all others, or first ones that kept them waiting as long."""
        return sum(
            turn > begun + (place + 1) * CAPACITY
            for begun, *turns in self.turns.values()
            for place, turn in enumerate(turns)
        )


async def insist(client: WireClient, contexts: Sequence[str]) -> Counter[str]:
    """All of them at once, and whoever is refused asks again at once. Returns how often each was refused."""
    num_refused: Counter[str] = Counter()
    for context in contexts:
        await client.speak(context, FIRST * 4)
    left = set(contexts)
    while left:
        match await client.receive():
            case wire.Done(context=context):
                left.remove(context)
            case wire.Error(context=str(context), code="overloaded", retry_after_ms=int()):
                num_refused[context] += 1
                await client.speak(context, FIRST * 4)
            case wire.Error(code="unknown_context"):
                pass  # its end was on its way when it was refused
            case wire.Error() as error:
                raise AssertionError(error)
    return num_refused


@pytest.mark.parametrize("is_bounded", [True, False])
async def test_nobody_who_was_let_in_has_an_underrun_because_of_others(is_bounded: bool) -> None:
    """Unbounded, to see that the measure sees it: so many do have an underrun where all are let in."""
    engine = SharedEngine(max_utterances=CAPACITY if is_bounded else NUM_OFFERED)
    config = GatewayConfig(waiting_contexts=NUM_WAITING, waiting_s=60.0)
    async with running_gateway(config, engine) as url, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect_to(url)) for _ in range(NUM_SOCKETS)]
        names = [[f"c{n}" for n in range(first, NUM_OFFERED, NUM_SOCKETS)] for first in range(NUM_SOCKETS)]
        refused = await asyncio.gather(*map(insist, clients, names))
    assert len(engine.turns) == NUM_OFFERED
    num_refused = sum(sum(each.values()) for each in refused)
    if is_bounded:
        assert num_refused > 0
        assert engine.num_gaps == 0
    else:
        assert num_refused == 0
        assert engine.num_gaps > 0


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
