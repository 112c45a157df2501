"""Events out of threads: none is lost, each thread's stay in order, and many wake the loop once."""

import asyncio
import threading

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.polling import until
from voicegate.engine.interface import EngineEvent, Failed, UtteranceId
from voicegate.engine.loop.outbox import Outbox

pytestmark = pytest.mark.unit


def event(thread: int, number: int) -> Failed:
    return Failed(UtteranceId(str(thread)), str(number))


async def test_of_many_threads_nothing_is_lost_and_each_ones_stay_in_order() -> None:
    taken: list[EngineEvent] = []
    has_all = asyncio.Event()

    def take(events: list[EngineEvent]) -> None:
        taken.extend(events)
        if len(taken) == 8 * 2000:
            has_all.set()

    outbox = Outbox(asyncio.get_running_loop(), take)

    def post(thread: int) -> None:
        for number in range(2000):
            outbox.put([event(thread, number)])

    threads = [threading.Thread(target=post, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(PATIENCE_S):
        await has_all.wait()
    for thread in threads:
        thread.join()
    for number in range(8):
        assert [each for each in taken if each.utterance_id == str(number)] == [event(number, n) for n in range(2000)]


async def test_what_comes_together_wakes_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, taken = asyncio.get_running_loop(), list[EngineEvent]()
    calls: list[object] = []
    call = loop.call_soon_threadsafe
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda function: (calls.append(function), call(function)))
    outbox = Outbox(loop, taken.extend)
    for number in range(100):
        outbox.put([event(0, number)])
    await until(lambda: len(taken) == 100)
    assert len(calls) == 1


def test_where_the_loop_is_gone_nobody_is_told() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    Outbox(loop, lambda _: None).put([event(0, 0)])
