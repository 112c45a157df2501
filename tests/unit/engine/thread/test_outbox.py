"""Events out of threads: none is lost, each thread's stay in order, and many wake the loop once."""

import asyncio
import threading
import time

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.polling import until
from voicegate.engine.interface import AudioReady, EngineEvent, Failed, UtteranceId
from voicegate.engine.thread.outbox import Outbox


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


def packet(pts_48k: int) -> AudioReady:
    return AudioReady(UtteranceId("0"), (b"a packet",), pts_48k)


async def test_a_first_packet_is_with_the_loop_when_its_thread_goes_on() -> None:
    taken: list[EngineEvent] = []
    outbox = Outbox(asyncio.get_running_loop(), taken.extend, right_of_way_s=PATIENCE_S)

    def post() -> list[EngineEvent]:
        outbox.put([event(0, 0), packet(0)])
        return list(taken)

    assert await asyncio.to_thread(post) == [event(0, 0), packet(0)]


async def test_so_is_one_behind_another_event() -> None:
    loop, taken = asyncio.get_running_loop(), list[EngineEvent]()
    outbox = Outbox(loop, taken.extend, right_of_way_s=PATIENCE_S)

    def post() -> bool:
        outbox.put([event(0, 0)])
        outbox.put([packet(0)])
        return packet(0) in taken

    assert await asyncio.to_thread(post)


def test_of_a_burst_one_waits_for_a_loop_that_does_not_come() -> None:
    loop, taken = asyncio.new_event_loop(), list[EngineEvent]()
    outbox = Outbox(loop, taken.extend, right_of_way_s=0.2)
    begun_s = time.monotonic()
    for _ in range(50):
        outbox.put([packet(0)])
    assert time.monotonic() - begun_s < 50 * 0.2 / 2
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert len(taken) == 50


async def test_the_loop_does_not_wait_for_itself() -> None:
    taken: list[EngineEvent] = []
    outbox = Outbox(asyncio.get_running_loop(), taken.extend, right_of_way_s=3600.0)
    outbox.put([event(0, 0)])
    await until(lambda: bool(taken))
    outbox.put([packet(0)])
    await until(lambda: len(taken) == 2)


def test_nobody_waits_for_long_and_for_other_packets_not_at_all() -> None:
    """The loop does not run meanwhile."""
    loop, taken = asyncio.new_event_loop(), list[EngineEvent]()
    Outbox(loop, taken.extend, right_of_way_s=3600.0).put([packet(960)])
    Outbox(loop, taken.extend, right_of_way_s=0.01).put([packet(0)])
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert taken == [packet(960), packet(0)]


def test_where_the_loop_is_gone_nobody_is_told() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    Outbox(loop, lambda _: None).put([event(0, 0)])
