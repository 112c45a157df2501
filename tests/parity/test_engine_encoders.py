"""The engine with encoder processes beside it says what it says without, and ends them with itself."""

import asyncio
from dataclasses import replace

import pytest

from engine.build import create_engine
from engine.interface import AudioReady, Cancelled, Done, UtteranceId, UtteranceRequest
from tests.support.tiny_engine import CONFIG

pytestmark = pytest.mark.parity

TEXT = "Good morning, it rains."


async def packets_of(num_processes: int) -> tuple[bytes, ...]:
    engine = create_engine(replace(CONFIG, encoder_processes=num_processes, max_active_clauses=2, threads=1))
    await engine.start()
    try:
        for name in ("kept", "cancelled"):
            engine.submit(UtteranceRequest(UtteranceId(name), "rms", seed=3))
            engine.push_text(UtteranceId(name), TEXT)
            engine.end_text(UtteranceId(name))
        packets: list[bytes] = []
        ended: dict[str, object] = {}
        while len(ended) < 2:
            event = await engine.next_event()
            if isinstance(event, AudioReady):
                assert event.utterance_id not in ended
                if event.utterance_id == "kept":
                    packets += event.packets
                else:
                    engine.cancel(event.utterance_id)
            elif isinstance(event, Done | Cancelled):
                ended[event.utterance_id] = event
        assert isinstance(ended["kept"], Done)
        assert ended["kept"].num_packets == len(packets)
        return tuple(packets)
    finally:
        await engine.close()


def test_processes_beside_the_engine_make_the_same_packets() -> None:
    assert asyncio.run(packets_of(2)) == asyncio.run(packets_of(0))
