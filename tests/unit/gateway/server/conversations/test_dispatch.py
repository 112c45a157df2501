"""Events reach the owner of their utterance, and nobody else."""

import asyncio

import pytest

from voicegate.engine.fake.engine import FakeEngine
from voicegate.engine.interface import AtRest, Done, EngineEvent, Failed, Flushed, UtteranceId, UtteranceRequest
from voicegate.gateway.server.conversations.dispatch import Dispatcher


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


async def test_a_place_is_free_when_an_utterance_rests_and_when_it_ends() -> None:
    engine, heard = FakeEngine(), list[EngineEvent]()
    await engine.start()
    num_heard_at: list[int] = []
    dispatcher = Dispatcher(engine, on_place=lambda: num_heard_at.append(len(heard)))
    utterance_id = UtteranceId("u")
    dispatcher.claim(utterance_id, heard.append)
    engine.submit(UtteranceRequest(utterance_id, "hum"))
    engine.push_text(utterance_id, "hello")
    engine.flush_text(utterance_id, "f")
    running = asyncio.create_task(dispatcher.run())
    await engine.until(lambda: engine.num_placed == 0)
    engine.end_text(utterance_id)
    await engine.until(lambda: engine.num_live == 0)
    await engine.close()
    await running
    assert [type(heard[number]) for number in num_heard_at] == [AtRest, Done], "before its owner hears of it"
