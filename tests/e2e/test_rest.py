"""The real engine behind a real socket: contexts that have said all of their text leave their places to others."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from tests.integration.http_client import PCM
from tests.integration.raw_client import get
from tests.integration.wire_client import WireClient, connect_to
from tests.support.patience import PATIENCE_S
from tests.support.patient_gateway import PATIENT
from tests.support.tiny_engine import tiny_engine
from voicegate.gateway.server.run import running_gateway
from voicegate.protocol import messages as wire

FIRST, SECOND = "Good morning, my friend.", " The train leaves at nine."


async def until_nobody_speaks(url: str) -> None:
    while True:
        if not json.loads((await get(url, "/v1/capacity"))[2])["utterances"]:
            return
        await asyncio.sleep(0.05)


async def samples_of(client: WireClient, context: str) -> npt.NDArray[np.int32]:
    packets = (await client.until_done(context)).packets
    return np.frombuffer(b"".join(packets), np.int16).astype(np.int32)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """URL of a server with two places and no queue for them."""
    engine = tiny_engine(max_utterances=2, stall_ms=350)
    async with running_gateway(replace(PATIENT, waiting_contexts=0), engine) as url:
        yield url


async def test_others_are_served_and_who_goes_on_sounds_as_if_it_had_not_rested(url: str) -> None:
    async with asyncio.timeout(2 * PATIENCE_S), connect_to(url) as client, connect_to(url) as other:
        for context in ("rests", "in one go"):
            await client.send(wire.Open(context, voice="woman", format=PCM, seed=3, mode="clause"))
            await client.send(wire.Text(context, FIRST), wire.Flush(context))
        await client.send(wire.Text("in one go", SECOND), wire.End("in one go"))
        wanted = await samples_of(client, "in one go")
        # Its writer has paused behind a sentence, without a flush.
        await client.send(wire.Open("paused"), wire.Text("paused", f"{FIRST} "))
        await until_nobody_speaks(url)
        for context in ("b", "c"):
            await other.speak(context, FIRST)
            assert (await other.until_done(context)).packets
        await client.send(wire.Text("rests", SECOND), wire.End("rests"))
        heard = await samples_of(client, "rests")
        await client.send(wire.Text("paused", SECOND), wire.End("paused"))
        assert (await client.until_done("paused")).packets
    assert len(heard) == len(wanted)
    assert np.abs(heard - wanted).max() <= 2, "by how many streams were computed together"


async def test_a_last_word_without_blank_or_flush_is_heard_and_leaves_its_place(url: str) -> None:
    """As an agent leaves it that calls a tool, or waits for an answer."""
    async with asyncio.timeout(2 * PATIENCE_S), connect_to(url) as client:
        await client.send(wire.Open("a", voice="woman", format=PCM))
        for token in ("How", " can", " I", " help", " you"):
            await client.send(wire.Text("a", token))
        await client.until(wire.Alignment, "a")
        await until_nobody_speaks(url)
        await client.send(wire.Cancel("a", played_ms=3_600_000))
        end = await client.until(wire.Cancelled, "a")
    assert (end.spoken_text, end.remaining_text) == ("How can I help you", "")
