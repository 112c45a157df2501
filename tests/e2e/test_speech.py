"""The tiny model behind a real socket: what is heard is what was written, word for word as far as an ASR can tell."""

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.patience import PATIENCE_S
from tests.support.patient_gateway import PATIENT
from tests.support.tiny_engine import shipped_stages, tiny_engine
from voicegate.bench.recogniser import Whisper, words_of
from voicegate.bench.word_errors import word_errors
from voicegate.clients.python.audio import Audio
from voicegate.clients.python.client import Gate, connect
from voicegate.clients.python.context import Context
from voicegate.clients.python.decode import decode_all
from voicegate.engine import units
from voicegate.gateway.server.run import running_gateway
from voicegate.protocol.messages import Cancelled, Done, Format

TEXT = "The train to the coast leaves at half past seven. It is going to rain this afternoon."


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    engine = tiny_engine(stages_of=shipped_stages)
    async with running_gateway(PATIENT, engine) as url, connect(url) as connected:
        yield connected


async def hear(context: Context, text: str) -> list[Audio]:
    """Everything one context says, its text sent a few characters at a time."""

    async def write() -> None:
        for start in range(0, len(text), 5):
            await context.say(text[start : start + 5])
        await context.end()

    async with asyncio.timeout(2 * PATIENCE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        return [audio async for audio in context]


def samples_of(context: Context, audio: list[Audio]) -> npt.NDArray[np.int16]:
    return np.frombuffer(decode_all(context.opened, audio, rate_hz=units.SAMPLE_RATE_HZ), np.int16)


@pytest.mark.parametrize("voice", ["woman", "man"])
async def test_streamed_text_is_understood(gate: Gate, voice: str) -> None:
    context = await gate.open(voice=voice, seed=3, lead_ms=60_000)
    audio = await hear(context, TEXT)
    assert isinstance(context.result, Done)
    samples = samples_of(context, audio)
    assert len(samples) == pytest.approx(
        context.result.audio_ms * units.SAMPLE_RATE_HZ / 1000, abs=units.SAMPLE_RATE_HZ / 500
    )
    heard = Whisper().words(samples, units.SAMPLE_RATE_HZ)
    # One of a hundred is usual (bench/results/quality.json). Processors round differently, and so speak differently.
    assert word_errors(words_of(TEXT), heard) <= 2


async def test_one_seed_gives_the_same_speech_as_opus_and_as_pcm(gate: Gate) -> None:
    text = "Good morning."
    opus = await gate.open(seed=5)
    pcm = await gate.open(seed=5, format=Format(codec="pcm_s16le"))
    decoded = samples_of(opus, await hear(opus, text)).astype(float)
    exact = samples_of(pcm, await hear(pcm, text)).astype(float)
    assert len(decoded) == len(exact)
    # A lossy codec, but of the same speech at the same place: a shift of half a millisecond would halve this.
    assert np.corrcoef(decoded, exact)[0, 1] > 0.9


async def test_barge_in_stops_one_context_and_no_other(gate: Gate) -> None:
    stopped, other = await gate.open(seed=1), await gate.open(seed=2, lead_ms=60_000)
    await stopped.say(TEXT)
    async with asyncio.timeout(2 * PATIENCE_S):
        async for _ in stopped:
            break
        result = await stopped.cancel()
    assert isinstance(result, Cancelled)
    assert result.spoken_text + result.remaining_text == TEXT
    assert len(result.remaining_text) > 10
    await hear(other, "Good morning.")
    assert isinstance(other.result, Done)
    assert other.result.audio_ms > 500
