"""FakeEngine beyond the contract: pitches, pace, and the faults of its script."""

import asyncio

import numpy as np
import pytest

from tests.contract.listener import Listener
from tests.support.patience import PATIENCE_S
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script, tone_hz
from voicegate.engine.interface import (
    AudioFormat,
    AudioReady,
    Codec,
    Done,
    EngineStopped,
    ListenerReport,
    Overloaded,
    UtteranceId,
)

PCM = AudioFormat(codec=Codec.PCM_S16LE)


async def listen_to(engine: FakeEngine) -> Listener:
    await engine.start()
    return Listener(engine, timeout_s=PATIENCE_S)


async def test_each_utterance_hums_its_own_pitch() -> None:
    listener = await listen_to(FakeEngine())
    for number in range(3):
        utterance = listener.submit(f"u{number}", text="abcdefghij", end=True, audio=PCM)
        await listener.until_end(utterance)
        samples = np.frombuffer(b"".join(listener.packets(utterance)), "<i2").astype(np.float64)
        spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
        assert np.argmax(spectrum) * 24_000 / len(samples) == pytest.approx(tone_hz(number), abs=3)
    await listener.engine.close()


async def test_a_word_waits_for_its_end_unless_flushed() -> None:
    listener = await listen_to(FakeEngine())
    utterance = listener.submit("u", text="one tw")
    audio = [await listener.until(utterance, AudioReady) for _ in range(2)]
    assert sum(len(event.packets) for event in audio) == 9  # three letters of 60 ms
    listener.engine.end_text(utterance)
    done = await listener.until_end(utterance)
    assert isinstance(done, Done)
    assert done.audio_ms == 5 * 60
    await listener.engine.close()


@pytest.mark.parametrize(
    ("script", "least_s"),
    [
        (Script(first_chunk_delay_s=0.1), 0.1),
        (Script(real_time_factor=0.2), 0.1),  # 600 ms at a fifth of real time, but for the last chunk
        (Script(real_time_factor=0.001, max_lead_ms=400), 0.15),  # 600 ms with 400 ms ahead, but for rounding
    ],
)
async def test_it_takes_the_scripts_time(script: Script, least_s: float) -> None:
    listener = await listen_to(FakeEngine(script))
    clock = asyncio.get_running_loop().time
    started_s = clock()
    await listener.until_end(listener.submit("u", text="abcdefghij", end=True))
    assert clock() - started_s >= least_s * 0.9
    await listener.engine.close()


async def test_what_no_listener_waits_for_is_made_beyond_any_lead() -> None:
    listener = await listen_to(FakeEngine(Script(real_time_factor=0.001, max_lead_ms=3_600_000)))
    utterance = listener.submit("u", is_background=True, lead_ms=100)
    listener.engine.note_listener(utterance, ListenerReport(0, is_playing=False))
    listener.engine.push_text(utterance, "abcdefghij")
    listener.engine.end_text(utterance)
    assert isinstance(await listener.until_end(utterance), Done)
    await listener.engine.close()


async def test_scripted_refusals_start_nothing() -> None:
    engine = FakeEngine(Script(refusals={1: Overloaded("full", retry_after_ms=7)}))
    listener = await listen_to(engine)
    listener.submit("first")
    with pytest.raises(Overloaded, match="full"):
        listener.submit("second")
    assert engine.num_live == len(engine.requests) == 1
    listener.submit("third")
    await engine.close()


async def test_a_stalled_utterance_can_be_cancelled() -> None:
    engine = FakeEngine(Script(faults={0: Fault(FaultKind.STALL, after_ms=120)}))
    listener = await listen_to(engine)
    utterance = listener.submit("u", text="abcdefghij", end=True)
    await listener.until(utterance, AudioReady)
    await listener.until_quiet()
    assert engine.num_live == 1
    engine.cancel(utterance, 60)
    await listener.until_end(utterance)
    assert engine.cancels == [(utterance, 60)]
    await engine.close()


async def test_death_ends_the_events_without_a_word() -> None:
    engine = FakeEngine(Script(faults={0: Fault(FaultKind.DIE, after_ms=120)}))
    listener = await listen_to(engine)
    utterance = listener.submit("u", text="abcdefghij", end=True)
    with pytest.raises(EngineStopped):
        await listener.until_end(utterance)
    assert listener.end_of(utterance) is None
    with pytest.raises(EngineStopped):
        listener.submit("late")
    engine.push_text(UtteranceId("u"), "x")
    await engine.close()
