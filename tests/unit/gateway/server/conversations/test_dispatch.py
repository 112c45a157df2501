"""Events reach the owner of their utterance, and nobody else."""

import asyncio

import pytest

from voicegate.engine.fake.engine import FakeEngine
from voicegate.engine.interface import Done, EngineEvent, Failed, Flushed, UtteranceId, UtteranceRequest
from voicegate.gateway.server.conversations.dispatch import Dispatcher

pytestmark = pytest.mark.unit


async def test_routes_by_utterance_until_its_end() -> None:
    engine = FakeEngine()
    await engine.start()
    dispatcher = Dispatcher(engine)
    heard: dict[str, list[EngineEvent]] = {"a": [], "b": []}
    for name in ("a", "b", "released", "never-claimed"):
        engine.submit(UtteranceRequest(UtteranceId(name), "hum"))
        engine.push_text(UtteranceId(name), "hello")
        if name in heard:
            dispatcher.claim(UtteranceId(name), heard[name].append)
    dispatcher.claim(UtteranceId("released"), lambda event: pytest.fail(f"{event} was not wanted"))
    dispatcher.release(UtteranceId("released"))
    running = asyncio.create_task(dispatcher.run())
    engine.flush_text(UtteranceId("a"), "f")
    for name in ("a", "b", "released", "never-claimed"):
        engine.end_text(UtteranceId(name))
    await engine.until(lambda: engine.num_live == 0)
    await engine.close()
    await running  # returns when the engine has stopped
    assert dispatcher.num_claimed == 0
    for name, events in heard.items():
        assert {event.utterance_id for event in events} == {name}
        assert [type(event) for event in events if isinstance(event, Done | Failed)] == [Done]
        assert isinstance(events[-1], Done)
    assert any(isinstance(event, Flushed) for event in heard["a"])
