"""The engine with encoder processes beside it says what it says without, outlives them, and ends them with itself."""

import asyncio
import gc
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

from tests.contract.listener import Listener
from tests.support.encoders import children, kill, until_whole
from tests.support.patience import PATIENCE_S
from tests.support.tiny_engine import CONFIG
from voicegate.engine.audio.encoder_pool import EncoderProcesses
from voicegate.engine.audio.head_start import HeadStarts
from voicegate.engine.interface import (
    AudioReady,
    Cancelled,
    Done,
    Engine,
    EngineEvent,
    Failed,
    Flushed,
    SpeakingMode,
    UtteranceId,
    UtteranceRequest,
)
from voicegate.engine.load.build import create_engine
from voicegate.engine.thread.worker import ThreadedEngine


async def events_of(engine: Engine, name: str, text: str) -> AsyncIterator[EngineEvent]:
    """Alone: other utterances would change the shapes of batches, hence the last bits of the samples."""
    engine.submit(UtteranceRequest(UtteranceId(name), "woman", seed=3))
    engine.push_text(UtteranceId(name), text)
    engine.end_text(UtteranceId(name))
    while True:
        event = await engine.next_event()
        assert event.utterance_id == name
        yield event
        if isinstance(event, Done | Cancelled):
            return


async def packets_of(num_processes: int) -> tuple[bytes, ...]:
    """Packets of an utterance that is spoken after one that is cancelled at its first packet."""
    engine = create_engine(replace(CONFIG, encoder_processes=num_processes, max_active_clauses=2, threads=1))
    await engine.start()
    try:
        async for event in events_of(engine, "cancelled", "It rains today. We stay at home."):
            if isinstance(event, AudioReady):
                engine.cancel(UtteranceId("cancelled"))
        assert isinstance(event, Cancelled)
        packets: list[bytes] = []
        async for event in events_of(engine, "kept", "Good morning."):
            packets += event.packets if isinstance(event, AudioReady) else ()
        assert isinstance(event, Done)
        assert event.num_packets == len(packets)
        return tuple(packets)
    finally:
        await engine.close()


def test_start_up_is_out_of_the_garbage_collectors_sight_until_the_engine_is_closed() -> None:
    async def frozen() -> tuple[int, int]:
        engine = create_engine(replace(CONFIG, encoder_processes=0, max_active_clauses=2, threads=1))
        await engine.start()
        while_running = gc.get_freeze_count()
        await engine.close()
        return while_running, gc.get_freeze_count()

    gc.unfreeze()  # pytest's collection is in permanent memory too (tests/distribution.py)
    num_before = gc.get_freeze_count()
    while_running, behind = asyncio.run(frozen())
    assert while_running > num_before + 10_000
    assert behind == 0


def test_processes_beside_the_engine_make_the_same_packets() -> None:
    assert asyncio.run(packets_of(2)) == asyncio.run(packets_of(0))


async def test_an_utterance_that_waits_for_text_fails_with_its_encoder_and_gives_its_room_back() -> None:
    """There is room for one, so the next can be spoken only if the core has let go of the one that failed."""
    engine = create_engine(replace(CONFIG, encoder_processes=1, max_active_clauses=1, threads=1))
    await engine.start()
    assert isinstance(engine, ThreadedEngine)
    pool = cast(EncoderProcesses, cast(HeadStarts, engine._encoders).encoders)
    listener = Listener(engine, timeout_s=PATIENCE_S)
    try:
        waiting = listener.submit("waiting", mode=SpeakingMode.BISTREAM)
        engine.flush_text(waiting, "")
        await listener.until(waiting, Flushed)
        engine.push_text(waiting, "Good ")
        kill(*children(pool))
        assert isinstance(await listener.until_end(waiting), Failed)
        engine.push_text(waiting, "morning.")
        await asyncio.to_thread(until_whole, pool, num_lost=1)
        assert engine.unready_reason is None
        assert engine.stats().counters["encoders_lost"] == 1
        other = listener.submit("other", text="Good morning.", end=True, mode=SpeakingMode.BISTREAM)
        assert isinstance(await listener.until_end(other), Done)
    finally:
        await engine.close()
