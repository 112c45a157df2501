"""When the engine's thread sleeps, and what wakes it then: what lanes reach, and commands."""

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from tests.support.disaggregated import OnLanes, on_lanes, threaded
from tests.support.lanes import LateLane, on_lane
from tests.support.patience import PATIENCE_S
from tests.support.tiny_engine import PCM
from voicegate.engine.core.core import EngineCore
from voicegate.engine.interface import Done, EngineEvent, Failed, SpeakingMode, UtteranceId, UtteranceRequest
from voicegate.engine.thread.worker import LoadedEngine, ThreadedEngine

NOBODY = cast(EngineCore, None)


def unstarted() -> ThreadedEngine:
    """A worker whose thread's work a test does."""
    return ThreadedEngine(lambda *_: cast(LoadedEngine, None))


def test_nothing_is_watched_by_a_thread_that_does_not_sleep() -> None:
    engine, lane = unstarted(), LateLane()
    engine._watcher.watch(lane.mark())
    assert engine._take_commands(NOBODY, 0.0)
    done: list[str] = []
    engine._inbox.put(lambda _: done.append("command"))
    assert engine._take_commands(NOBODY, None)
    assert done == ["command"]
    assert lane.num_waits == 0
    engine._watcher.close()


def test_a_thread_that_sleeps_is_woken_by_what_a_lane_reaches() -> None:
    engine, lane = unstarted(), LateLane()
    engine._watcher.watch(lane.mark())
    assert engine._take_commands(NOBODY, None)
    assert (lane.num_waits, lane.num_reached) == (1, 1)
    engine._watcher.close()
    assert lane.num_waits == 1


def test_a_thread_that_has_not_looked_at_what_was_reached_does_not_sleep() -> None:
    engine, lane = unstarted(), LateLane()
    engine._watcher.watch(lane.mark())
    lane.num_reached = 1
    assert engine._take_commands(NOBODY, None)
    assert lane.num_waits == 0
    engine._watcher.close()


async def _ends(engine: ThreadedEngine, number: int) -> list[EngineEvent]:
    ends: list[EngineEvent] = []
    while len(ends) < number:
        event = await asyncio.wait_for(engine.next_event(), PATIENCE_S)
        ends += [event] if isinstance(event, Done | Failed) else []
    return ends


def late(made: OnLanes) -> tuple[OnLanes, list[LateLane]]:
    lanes = [LateLane() for _ in range(1 + len(made.all_stages))]
    llm = on_lane(made.models.runner, lanes[0])
    parts = zip(made.all_stages, lanes[1:], strict=True)
    stages = [replace(each, llm=llm, token2wav_lane=lane, is_concurrent=True) for each, lane in parts]
    return replace(made, all_stages=stages), lanes


@pytest.mark.parametrize("number", [1, 3])
async def test_speech_on_lanes_that_get_nowhere_unwatched(number: int) -> None:
    """Every lane of every device, in one thread."""
    made, lanes = late(on_lanes(number))
    engine = threaded(made, patience_s=PATIENCE_S)
    await engine.start()
    for place in range(2 * number):
        name = UtteranceId(f"u{place}")
        engine.submit(UtteranceRequest(name, "woman", PCM, SpeakingMode.CLAUSE))
        engine.push_text(name, "Good morning, and welcome.")
        engine.end_text(name)
    ends = await _ends(engine, 2 * number)
    assert all(isinstance(end, Done) for end in ends)
    await engine.close()
    for lane in lanes:
        assert 0 < lane.num_waits <= lane.num_marks
