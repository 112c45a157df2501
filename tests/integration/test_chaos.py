"""The Python client through a network that cuts, delays, splits and joins: nobody hears anything of it."""

import asyncio
import random
from collections import defaultdict

import pytest

from tests.integration.chaos_proxy import ChaosProxy
from tests.soak.keeping import Keep
from voicegate.clients.python.backoff import Backoff
from voicegate.clients.python.client import Gate, connect
from voicegate.clients.python.context import Context
from voicegate.engine.fake.engine import FakeEngine, Script
from voicegate.engine.interface import UtteranceId
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.run import running_gateway
from voicegate.protocol.messages import Format

AT_ONCE = Backoff(first_s=0.001, max_s=0.02)
SCRIPT = Script(real_time_factor=0.02, chunk_ms=60, ms_per_character=20, max_lead_ms=60_000)
WORDS = ("sooner", "or", "later", "every", "wire", "is", "cut,", "and", "somebody", "says", "so;", "42", "times.")
NUM_AT_ONCE = 4

Speech = tuple[list[bytes], str, list[str], int]


class RecordingEngine(FakeEngine):
    """Knows what it was given to say."""

    def __init__(self) -> None:
        super().__init__(SCRIPT)
        self.texts: dict[UtteranceId, str] = defaultdict(str)

    def push_text(self, utterance_id: UtteranceId, text: str) -> None:
        self.texts[utterance_id] += text
        super().push_text(utterance_id, text)


def texts_of(num_utterances: int) -> list[list[str]]:
    """In the pieces in which they are sent."""
    drawn = random.Random(7)
    return [[f"{drawn.choice(WORDS)} " for _ in range(drawn.randrange(2, 25))] for _ in range(num_utterances)]


async def speak_on(context: Context, pieces: list[str]) -> Speech:
    async def write() -> None:
        for number, piece in enumerate(pieces):
            await context.say(piece)
            if number % 7 == 3:
                await context.flush(str(number))
                await context.report_playback(number)
        await context.end()

    writing = asyncio.create_task(write())
    packets = [packet async for audio in context for packet in audio.packets]
    await writing
    assert context.end_pts_48k is not None
    # How many items there are depends on when text came; what does not sound is in none.
    words = "".join(char for item in context.alignments for char in item.text if char.isalnum())
    return packets, words, [flushed.id for flushed in context.flushes], context.end_pts_48k


async def speak_all(gate: Gate, engine: RecordingEngine, texts: list[list[str]]) -> list[Speech]:
    """Several at a time, begun in order: the FakeEngine hums a pitch of its own for each."""
    room = asyncio.Semaphore(NUM_AT_ONCE)
    speaking: list[asyncio.Task[Speech]] = []

    async def finish(context: Context, pieces: list[str]) -> Speech:
        try:
            return await speak_on(context, pieces)
        finally:
            room.release()

    async with asyncio.TaskGroup() as tasks:
        for number, pieces in enumerate(texts):
            await room.acquire()
            audio_format = Format(codec="pcm_s16le") if number % 10 == 9 else Format()
            context = await gate.open(format=audio_format)
            await context.say(pieces[0])
            await engine.until(lambda n=number: len(engine.requests) > n)
            speaking.append(tasks.create_task(finish(context, pieces[1:])))
    return [task.result() for task in speaking]


async def all_speech(texts: list[list[str]], seed: int | None) -> tuple[list[Speech], int, int]:
    """With the numbers of cuts and of resumptions. `seed` None: nothing goes wrong."""
    engine = RecordingEngine()
    async with running_gateway(GatewayConfig(messages_per_s=100_000), engine) as url:
        proxy = ChaosProxy(url, seed or 0)
        async with proxy.running(), connect(proxy.url, backoff=AT_ONCE) as gate:
            proxy.is_wild = seed is not None
            speeches = await speak_all(gate, engine, texts)
            proxy.is_wild = False
        assert len(engine.requests) == len(texts), "none was begun twice"
        assert list(engine.texts.values()) == ["".join(pieces) for pieces in texts]
        assert engine.cancels == []
        return speeches, proxy.num_cuts, gate.num_resumed


async def hear_what_an_uncut_wire_brings(num_utterances: int, seed: int) -> tuple[int, int]:
    texts = texts_of(num_utterances)
    expected, num_cuts, num_resumed = await all_speech(texts, None)
    assert (num_cuts, num_resumed) == (0, 0)
    heard, num_cuts, num_resumed = await all_speech(texts, seed)
    assert heard == expected
    return num_cuts, num_resumed


@pytest.mark.soak
async def test_a_thousand_utterances_through_a_bad_network(keep: Keep) -> None:
    num_cuts, num_resumed = await hear_what_an_uncut_wire_brings(1000, seed=2)
    keep(utterances=1000, cuts=num_cuts, resumed=num_resumed)
    assert num_cuts > 1000
    assert num_resumed > 700


async def test_sixty_utterances_through_a_bad_network() -> None:
    num_cuts, num_resumed = await hear_what_an_uncut_wire_brings(60, seed=1)
    assert num_cuts > 30
    assert num_resumed > 20
