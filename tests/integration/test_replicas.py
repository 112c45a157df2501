"""A gateway over engine processes: what clients and operators see when one is lost. The processes are in this loop."""

import asyncio
import json
from functools import partial

from tests.integration.raw_client import get
from tests.integration.test_metrics import scrape
from tests.integration.wire_client import connect_to, running
from tests.support.polling import until
from tests.support.replicas import RoutedEngine
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.protocol import messages as wire

STALLED = Script(faults=dict.fromkeys(range(10), Fault(FaultKind.STALL, after_ms=120)))


async def test_a_lost_engine_process_is_one_clients_error_and_everybodys_number() -> None:
    may_start = asyncio.Event()

    class Late(FakeEngine):
        async def start(self) -> None:
            await may_start.wait()
            await super().start()

    first, second = iter([FakeEngine(STALLED), Late()]), iter([FakeEngine(STALLED), Late()])
    engine = RoutedEngine(partial(next, first), partial(next, second))
    async with running(engine, metrics_port=0) as served, connect_to(served.gateway.url) as client:
        await client.speak("first", "never said to its end")
        await client.until(wire.Alignment)
        await client.speak("second", "never said to its end")
        await client.until(wire.Alignment, "second")
        engine.host.kill(0)
        error = await client.until(wire.Error)
        assert (error.context, error.code) == ("first", "engine_failed")
        assert "engine process" in error.message
        capacity = json.loads((await get(served.gateway.url, "/v1/capacity"))[2])
        assert capacity["accepts"]
        assert [(each["name"], each["ready"], each["utterances"]) for each in capacity["replicas"]] == [
            ("place:0", False, 0),
            ("place:1", True, 1),
        ]
        await client.send(wire.Cancel("second"))
        assert (await client.until(wire.Cancelled)).context == "second"
        engine.host.kill(1)
        await until(lambda: engine.unready_reason is not None)
        status, _, text = await get(served.gateway.url, "/readyz")
        assert (status, "being replaced" in text) == (503, True)
        assert (await get(served.gateway.url, "/healthz"))[0] == 200
        may_start.set()
        await until(lambda: engine.unready_reason is None)
        await client.speak("third", "said")
        await client.until_done("third")
        told = await scrape(served)
        assert (told("replicas_lost_total", replica="place:0"), told("ready")) == (1, 1)
        assert told("replica_utterances_lost_total", replica="place:0") == 1
