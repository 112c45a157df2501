"""Scenarios against the FakeEngine: whom they start, what they measure, and that they leave nothing behind."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.unit.clients.deadline import deadline
from voicegate.bench.engine import scenarios
from voicegate.bench.engine.driver import Driver, Speech, driving
from voicegate.bench.engine.load import StartPattern
from voicegate.bench.engine.scenarios import LiveLoad, Load, burst, cancel, first_audio, live
from voicegate.bench.engine.texts import Script as Text
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.engine.interface import Done, EngineError, EngineStopped, Overloaded, SpeakingMode

# 20 letters at 10 ms each: 200 ms of audio in two chunks.
TEXT = Text("abcdefghij klmnopqrst", ("abcdefghij", " klmnopqrst"), 0.2)
ENGINE = Script(ms_per_character=10, chunk_ms=100, real_time_factor=0.1, max_lead_ms=5_000)
LOAD = Load(scripts=[TEXT], short_scripts=[TEXT], voices=["ada"], num_samples=6, duration_s=0.3, limit_s=10.0)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(scenarios, "_SETTLE_S", 0.1)
    monkeypatch.setattr(scenarios, "_CANCEL_AFTER_S", (0.0, 0.02))
    with deadline():
        yield


@asynccontextmanager
async def fake_driver(script: Script = ENGINE, speech: Speech | None = None) -> AsyncIterator[Driver]:
    engine = FakeEngine(script)
    await engine.start()
    try:
        async with driving(engine, speech or Speech(mode=SpeakingMode.CLAUSE)) as driver:
            yield driver
        assert engine.num_live == 0
    finally:
        await engine.close()


def load_of(driver: Driver, **changes: object) -> Load:
    return replace(LOAD, voices=[driver.engine.info.default_voice], **changes)  # type: ignore[arg-type]


async def test_first_audio_is_of_one_stream_at_a_time_without_a_lead() -> None:
    async with fake_driver() as driver:
        outcome = await first_audio(driver, load_of(driver))
        assert isinstance(driver.engine, FakeEngine)
        assert [request.lead_ms for request in driver.engine.requests] == [5_000] * 6
    assert len(outcome.heard) == len(outcome.timings) == 6
    assert outcome.failures == []
    assert all(heard.audio_ms >= 200 for heard in outcome.heard)
    assert outcome.expected_s == pytest.approx(1.2)


async def test_a_delay_of_the_engine_is_first_audio() -> None:
    async with fake_driver(replace(ENGINE, first_chunk_delay_s=0.08)) as driver:
        outcome = await first_audio(driver, load_of(driver, num_samples=2))
    assert all(80 <= heard.first_audio_ms < 1000 for heard in outcome.heard)


async def test_a_burst_starts_all_at_once_in_rounds_until_there_are_enough() -> None:
    async with fake_driver() as driver:
        outcome = await burst(driver, load_of(driver), 4)
    assert len(outcome.heard) == 8
    assert outcome.extra["num_rounds"] == 2
    assert outcome.audio_s_per_s is not None
    assert outcome.audio_s_per_s > 0


async def test_live_streams_follow_each_other_and_are_live_until_played_out() -> None:
    async with fake_driver() as driver:
        outcome = await live(driver, load_of(driver, duration_s=0.8), 3)
    assert len(outcome.heard) >= 6
    assert outcome.failures == []
    # Generation takes a tenth of real time: were a stream over when generated, hardly one would be live.
    assert 2.0 <= outcome.extra["mean_live_streams"] <= 3.0
    # Three listeners of 0.22 s each, for 0.8 s: about eleven begin; without playing out, a hundred would.
    assert len(outcome.heard) < 25


@pytest.mark.parametrize("pattern", [StartPattern.BURST, StartPattern.POISSON])
async def test_other_arrivals(pattern: StartPattern) -> None:
    async with fake_driver() as driver:
        outcome = await live(driver, load_of(driver, pattern=pattern), 3)
    assert len(outcome.heard) >= 6
    assert outcome.failures == []


async def test_cancels_are_timed_and_what_comes_after_them_is_counted() -> None:
    async with fake_driver(replace(ENGINE, ms_per_character=100)) as driver:
        outcome = await cancel(driver, load_of(driver), 2)
        assert isinstance(driver.engine, FakeEngine)
        assert len(driver.engine.cancels) >= 6
    assert outcome.extra["cancel_ms"]["num"] >= 6
    # Packets that the engine had made before it heard of the cancel: whole chunks of five, if any.
    assert outcome.extra["packets_after_cancel"] % 5 == 0


async def test_refusals_and_failures_are_counted_not_hidden() -> None:
    script = replace(
        ENGINE,
        refusals={1: Overloaded("no room", retry_after_ms=5)},
        faults={2: Fault(FaultKind.FAIL, after_ms=100)},
    )
    async with fake_driver(script) as driver:
        outcome = await burst(driver, load_of(driver, num_samples=2), 4)
    assert sorted(outcome.failures) == ["no room", "scripted failure"]
    assert len(outcome.heard) == 2


async def test_who_ends_unheard_has_failed() -> None:
    silent = Text("?!", ("?!",), 0.2)
    async with fake_driver() as driver:
        outcome = await first_audio(driver, load_of(driver, short_scripts=[TEXT, silent], num_samples=4))
    assert len(outcome.heard) == 2
    assert outcome.failures == ["it ended, and no audio had come"] * 2


async def test_who_starves_at_the_limit_is_cut_off_and_counts() -> None:
    script = replace(ENGINE, faults={0: Fault(FaultKind.STALL, after_ms=100)})
    async with fake_driver(script) as driver:
        outcome = await burst(driver, load_of(driver, num_samples=2, limit_s=0.6), 2)
    starved = [heard for heard in outcome.heard if heard.is_cut_off]
    assert len(outcome.heard) == 2
    assert len(starved) == 1
    assert starved[0].worst_underrun_ms is not None
    assert starved[0].worst_underrun_ms > 300


async def test_a_dead_engine_ends_the_scenario_with_its_error() -> None:
    script = replace(ENGINE, faults={3: Fault(FaultKind.DIE, after_ms=100)})
    engine = FakeEngine(script)
    await engine.start()
    async with driving(engine, Speech()) as driver:
        with pytest.raises(EngineError):
            await first_audio(driver, load_of(driver))
        with pytest.raises(EngineStopped):
            driver.check()
    await engine.close()


async def test_paced_text_arrives_piece_by_piece() -> None:
    async with fake_driver(speech=Speech(tokens_per_s=10.0)) as driver:
        stream = driver.start(TEXT, driver.engine.info.default_voice)
        await stream.ended
    assert isinstance(stream.end, Done)
    assert stream.end.audio_ms == 200
    assert stream.arrivals[-1].arrived_s - stream.due_s >= 0.1


async def test_leaving_the_driver_cancels_what_runs() -> None:
    async with fake_driver(replace(ENGINE, ms_per_character=1000)) as driver:
        crowd = LiveLoad(driver, load_of(driver, pattern=StartPattern.BURST), 3)
        crowd.close()
    assert all(stream.end is not None for stream in crowd.streams)
    assert len(crowd.streams) == 3
