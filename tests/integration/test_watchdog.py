"""An engine that hangs or dies: listeners are told instead of hearing nothing, probes turn red, and green again."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator

import pytest

from tests.integration.http_client import post
from tests.integration.raw_client import get
from tests.integration.wire_client import TIMEOUT_S, Running, WireClient, closed_with, connect_to, running
from tests.support.disaggregated import on_lanes, threaded
from tests.support.hollow_stages import hollow
from tests.support.polling import until
from tests.support.tiny_engine import CONFIG
from voicegate.engine.audio.outlet import Sink
from voicegate.engine.core.core import EngineCore
from voicegate.engine.core.policy import Decision
from voicegate.engine.device.watcher import Waker
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.engine.interface import Engine
from voicegate.engine.load.build import engine_info
from voicegate.engine.thread.worker import LoadedEngine, ThreadedEngine
from voicegate.gateway.server.server import EXIT_FAILED, EXIT_OK
from voicegate.protocol import messages as wire

# Lower takes an engine that a busy machine does not get to for one that hangs.
LIMIT_S = 3.0


class Killed(BaseException):
    """As no `except Exception` catches it."""


class HeldEngine:
    """The real engine's thread on hollow models: it waits inside a step where a test wants it to, or dies there."""

    def __init__(self) -> None:
        self.may_step = threading.Event()
        self.may_step.set()
        self.is_to_die = False
        self.engine = ThreadedEngine(self._load)

    def _load(self, sink: Sink, waker: Waker) -> LoadedEngine:
        models = hollow()
        core = EngineCore(CONFIG, models.stages, time.monotonic, sink, waker=waker)
        step = core.step

        def held_step() -> Decision:
            assert self.may_step.wait(TIMEOUT_S)
            if self.is_to_die:
                raise Killed
            return step()

        core.step = held_step  # type: ignore[method-assign]
        return LoadedEngine(core, engine_info(CONFIG, models.stages))


@contextlib.asynccontextmanager
async def watched(engine: Engine) -> AsyncIterator[Running]:
    async with running(engine, engine_timeout_s=LIMIT_S, waiting_s=0.0) as served:
        yield served


async def health(served: Running) -> tuple[int, int]:
    return (await get(served.gateway.url, "/healthz"))[0], (await get(served.gateway.url, "/readyz"))[0]


async def until_healthy(served: Running) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while await health(served) != (200, 200):
            pass


async def told_of(client: WireClient, context: str) -> wire.Error:
    """Its error, which on a busy machine comes before it is waited for."""
    (heard,) = client.heard[context]
    while not (told := [message for message in heard.messages if isinstance(message, wire.Error)]):
        await client.receive()
    return told[0]


async def check_that_it_is_told(served: Running, client: WireClient) -> None:
    """With the context `speaks` at work in an engine that hangs, and `idle` open."""
    error = await client.until(wire.Error)
    assert (error.code, error.context, error.fatal) == ("engine_failed", "speaks", True)
    assert "the engine hangs" in error.message
    assert await health(served) == (503, 503)
    await client.send(wire.Text("idle", "is there anybody?"))
    error = await client.until(wire.Error)
    assert (error.code, error.context) == ("overloaded", "idle")
    assert isinstance(error.retry_after_ms, int)
    await client.send(wire.Ping(7))
    assert await client.until(wire.Pong) == wire.Pong(7)


async def test_a_fake_engine_that_hangs_is_told_and_recovers() -> None:
    engine = FakeEngine(Script(faults={0: Fault(FaultKind.HANG, after_ms=120)}))
    async with watched(engine) as served, connect_to(served.gateway.url) as client:
        await client.send(wire.Open(context="idle"))
        await client.speak("speaks", "and then nothing more")
        await check_that_it_is_told(served, client)
        engine.go_on()
        await until_healthy(served)
        await client.speak("next", "at last")
        await client.until(wire.Done, "next")


async def test_a_request_by_http_is_answered_too() -> None:
    engine = FakeEngine(Script(faults={0: Fault(FaultKind.HANG)}))
    body = {"model": "tts-1", "voice": "hum", "input": "nothing is heard of it"}
    async with watched(engine) as served:
        status, _, answer = await post(served.gateway.url, "/v1/audio/speech", body)
        assert (status, b"the engine hangs" in answer) == (500, True)
        status, headers, answer = await post(served.gateway.url, "/v1/audio/speech", body)
        assert (status, b"the engine hangs" in answer, "retry-after" in headers) == (503, True, True)
        engine.go_on()
        await until_healthy(served)
        assert (await post(served.gateway.url, "/v1/audio/speech", body))[0] == 200


async def test_a_thread_that_hangs_is_told_and_recovers() -> None:
    held = HeldEngine()
    async with watched(held.engine) as served, connect_to(served.gateway.url) as client:
        await client.send(wire.Open(context="idle"))
        held.may_step.clear()
        await client.speak("speaks", "Nothing is heard of it.")
        await check_that_it_is_told(served, client)
        held.may_step.set()
        await until_healthy(served)
        assert held.engine.pulse is None
        await client.speak("next", "At last.")
        await client.until(wire.Done, "next")


async def test_one_token2wav_that_hangs_is_told_and_the_other_speaks_on() -> None:
    made = on_lanes()
    async with watched(threaded(made, patience_s=LIMIT_S)) as served, connect_to(served.gateway.url) as client:
        try:
            made.lanes[0].hang()
            await client.speak("speaks", "Nothing is heard of it.")
            error = await client.until(wire.Error)
            assert (error.code, error.context, error.fatal) == ("engine_failed", "speaks", True)
            assert "the device that spoke this hangs" in error.message
            status, _, answer = await get(served.gateway.url, "/healthz")
            assert (status, "without cpu.2, which hangs" in answer) == (200, True)
            assert (await get(served.gateway.url, "/readyz"))[0] == 200
            await client.speak("next", "At last.")
            await client.until(wire.Done, "next")
        finally:
            made.lanes[0].go_on()


@pytest.mark.parametrize("is_noticed_first", [True, False])
async def test_a_drain_while_one_token2wav_hangs_ends_whole_what_the_other_speaks(is_noticed_first: bool) -> None:
    """Whether it hung before or is only noticed meanwhile, nobody waits for it until the drain time is over."""
    made = on_lanes()
    engine = threaded(made, patience_s=LIMIT_S)
    async with running(engine, engine_timeout_s=LIMIT_S, drain_s=1_000.0) as served:
        try:
            async with connect_to(served.gateway.url) as client:
                made.lanes[0].hang()
                await client.speak("lost", "Nothing is heard of it.")
                await client.send(wire.Open(context="speaks"), wire.Text("speaks", "It begins. "))
                await client.until(wire.Alignment, "speaks")
                if is_noticed_first:
                    await told_of(client, "lost")
                served.stop.set()
                await client.until(wire.Draining)
                assert (await told_of(client, "lost")).code == "engine_failed"
                await client.send(wire.Text("speaks", "And it ends."), wire.End("speaks"))
                await client.until(wire.Done, "speaks")
                assert await closed_with(client) == 1001
            assert await served.exit_status == EXIT_OK
        finally:
            made.lanes[0].go_on()


async def test_an_llm_that_hangs_is_told_by_the_name_of_its_device() -> None:
    made = on_lanes()
    async with watched(threaded(made, patience_s=LIMIT_S)) as served, connect_to(served.gateway.url) as client:
        try:
            await client.send(wire.Open(context="idle"))
            made.llm_lane.hang()
            await client.speak("speaks", "Nothing is heard of it.")
            await check_that_it_is_told(served, client)
            assert "the engine hangs at cpu:" in (await get(served.gateway.url, "/healthz"))[2]
        finally:
            made.llm_lane.go_on()
        await until_healthy(served)
        await client.speak("next", "At last.")
        await client.until(wire.Done, "next")


async def test_a_thread_that_dies_is_told_and_ends_the_server() -> None:
    held = HeldEngine()
    async with watched(held.engine) as served, connect_to(served.gateway.url) as client:
        held.is_to_die = True
        await client.speak("speaks", "Nothing is heard of it.")
        error = await client.until(wire.Error)
        assert (error.code, error.context, error.fatal) == ("engine_failed", "speaks", True)
        assert await served.exit_status == EXIT_FAILED


async def test_an_engine_at_rest_is_no_engine_that_hangs() -> None:
    held = HeldEngine()
    async with watched(held.engine) as served, connect_to(served.gateway.url) as client:
        await client.speak("first", "Good morning.")
        await client.until(wire.Done)
        await until(lambda: held.engine.pulse is None)
        held.may_step.clear()  # and nobody asks for a step
        await client.send(wire.Open(context="opened is not speaking"))
        assert held.engine.pulse is None
        held.may_step.set()
