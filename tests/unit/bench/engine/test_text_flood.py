"""Rounds beside floods: one that comes to no end is cut off, and what was heard by then counts."""

import pytest

from voicegate.bench.engine import text_flood
from voicegate.bench.engine.driver import Speech, driving
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.engine.interface import SpeakingMode

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_flood, "_SETTLE_S", 0.0)
    monkeypatch.setattr(text_flood, "_NUM_MESSAGES", 1)
    monkeypatch.setattr(text_flood, "_MESSAGE_CHARS", 100)
    monkeypatch.setattr(text_flood, "_VOICE", "hum")


async def heard_of(script: Script, round_s: float) -> text_flood.Heard:
    engine = FakeEngine(script)
    await engine.start()
    heard = text_flood.Heard()
    async with driving(engine, Speech(SpeakingMode.CLAUSE)) as driver:
        await heard.round(driver, "numbers", round_s)
        assert engine.num_live == 0
    await engine.close()
    return heard


async def test_a_round_that_comes_to_its_end() -> None:
    heard = await heard_of(Script(real_time_factor=0.0), 60.0)
    assert (heard.num_cut_off, heard.num_unheard) == (0, 0)
    assert len(heard.first_audio_ms) == 5
    assert len(heard.gaps_ms) == 1


async def test_a_round_that_comes_to_none_is_cut_off() -> None:
    heard = await heard_of(Script(faults={number: Fault(FaultKind.STALL) for number in range(20)}), 0.05)
    assert (heard.num_cut_off, heard.num_unheard) == (1, 1)
    assert heard.first_audio_ms == []
    assert len(heard.gaps_ms) == 1
