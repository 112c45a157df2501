"""A context whose text is all spoken holds no place, and takes one again with its next text: over real sockets."""

import asyncio
import json
from typing import Any

import pytest

from tests.integration.raw_client import get
from tests.integration.wire_client import Served, WireClient, serving
from tests.support.patience import PATIENCE_S
from voicegate.engine.fake.engine import Script
from voicegate.protocol import messages as wire

FIRST, SECOND = "one two three", " and four more"
NUM_CONTEXTS = 64
PCM = wire.Format(codec="pcm_s16le")


async def capacity(served: Served) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((await get(served.url, "/v1/capacity"))[2])
    return told


async def speak_and_stay(client: WireClient, context: str, **fields: Any) -> None:
    await client.send(wire.Open(context=context, **fields), wire.Text(context, FIRST), wire.Flush(context))
    await client.until(wire.Flushed, context)


async def until_told(served: Served, **wanted: object) -> dict[str, Any]:
    """By /v1/capacity."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            told = await capacity(served)
            if all(told[name] == value for name, value in wanted.items()):
                return told


async def until_at_rest(served: Served, num_placed: int) -> None:
    await served.until(lambda engine: engine.num_placed == num_placed)
    await until_told(served, utterances=num_placed)


async def test_contexts_that_were_flushed_and_stay_open_lock_nobody_out() -> None:
    script = Script(max_utterances=NUM_CONTEXTS)
    async with serving(script, waiting_contexts=0) as served, served.client() as polite, served.client() as other:
        names = [f"c{number}" for number in range(NUM_CONTEXTS)]
        for name in names:
            await speak_and_stay(polite, name)
        await until_at_rest(served, 0)
        told = await capacity(served)
        assert (told["contexts"], told["utterances"], told["room"]) == (NUM_CONTEXTS, 0, NUM_CONTEXTS)
        assert (told["accepts"], told["retry_after_ms"]) == (True, 500)
        await other.speak("mine", FIRST)
        await other.until_done("mine")
        for name in names:
            await polite.send(wire.Text(name, SECOND), wire.End(name))
            assert (await polite.until_done(name)).audio[-1].is_last


async def test_who_speaks_again_sounds_as_one_that_never_rested() -> None:
    async with serving(Script(max_utterances=1)) as served, served.client() as client:
        await speak_and_stay(client, "a", speed=1.1, seed=7)
        await until_at_rest(served, 0)
        await client.speak("b", FIRST)
        await client.until_done("b")
        await client.send(wire.Text("a", SECOND), wire.End("a"))
        rested = await client.until_done("a")
        (request, _) = served.engine.requests
    async with serving() as served, served.client() as client:
        await client.send(wire.Open(context="a", speed=1.1, seed=7), wire.Text("a", FIRST), wire.Flush("a"))
        await client.send(wire.Text("a", SECOND), wire.End("a"))
        in_one_go = await client.until_done("a")
    assert (request.speed, request.seed) == (1.1, 7)
    assert rested.packets == in_one_go.packets
    words = [
        [item for each in heard.messages if isinstance(each, wire.Alignment) for item in each.items]
        for heard in (rested, in_one_go)
    ]
    assert words[0] == words[1]


async def test_where_all_places_are_taken_it_waits_for_one_and_loses_nothing() -> None:
    async with serving(Script(max_utterances=1), waiting_s=60.0) as served, served.client() as client:
        await speak_and_stay(client, "a", format=PCM)
        await until_at_rest(served, 0)
        await client.send(wire.Open(context="b"), wire.Text("b", FIRST))
        await served.until(lambda engine: engine.num_placed == 1)
        await client.send(wire.Text("a", SECOND), wire.Flush("a", "again"), wire.Text("a", FIRST), wire.End("a"))
        await until_told(served, waiting=1)
        await client.send(wire.End("b"))
        heard = await client.until_done("a")
        assert [each.id for each in heard.messages if isinstance(each, wire.Flushed)] == ["", "again"]
        num_letters = sum(map(str.isalnum, FIRST + SECOND + FIRST))
        assert heard.messages[-1].audio_ms == pytest.approx(num_letters * 60, abs=40)


async def test_where_none_gets_free_it_is_told_so_and_can_be_opened_again() -> None:
    async with serving(Script(max_utterances=1), waiting_s=0.05) as served, served.client() as client:
        await speak_and_stay(client, "a")
        await until_at_rest(served, 0)
        await client.send(wire.Open(context="b"), wire.Text("b", FIRST))
        await served.until(lambda engine: engine.num_placed == 1)
        await client.send(wire.Text("a", SECOND))
        error = await client.until(wire.Error, "a")
        assert (error.code, error.fatal) == ("overloaded", True)
        assert isinstance(error.retry_after_ms, int)
        assert "open another for the text that it did not say" in error.message
        await served.until(lambda engine: engine.num_live == 1)
        await client.send(wire.End("b"))
        await client.until_done("b")
        await client.speak("a", SECOND)
        await client.until_done("a")


async def test_a_cancel_while_it_waits_tells_all_of_its_text() -> None:
    async with serving(Script(max_utterances=1), waiting_s=60.0) as served, served.client() as client:
        await speak_and_stay(client, "a")
        await until_at_rest(served, 0)
        await client.send(wire.Open(context="b"), wire.Text("b", FIRST))
        await served.until(lambda engine: engine.num_placed == 1)
        await client.send(wire.Text("a", SECOND), wire.Cancel("a"))
        cancelled = await client.until(wire.Cancelled, "a")
        assert (cancelled.spoken_text, cancelled.remaining_text) == (FIRST, SECOND)
        assert (await capacity(served))["waiting"] == 0
        await client.send(wire.End("b"))
        await client.until_done("b")


async def test_blanks_that_keep_a_context_open_ask_for_no_place() -> None:
    async with serving(Script(max_utterances=1), waiting_contexts=0) as served, served.client() as client:
        await speak_and_stay(client, "a")
        await until_at_rest(served, 0)
        await client.send(wire.Open(context="b"), wire.Text("b", FIRST))
        await served.until(lambda engine: engine.num_placed == 1)
        await client.send(wire.Text("a", " "), wire.Flush("a", "blank"))
        assert (await client.until(wire.Flushed, "a")).id == "blank"
        await client.send(wire.Cancel("b"))
        await client.until(wire.Cancelled, "b")
        await client.send(wire.Text("a", SECOND), wire.End("a"))
        await client.until_done("a")


async def test_a_server_that_turns_everybody_away_says_so_until_a_place_is_free() -> None:
    script = Script(max_utterances=1)
    async with serving(script, waiting_s=0.05) as served, served.client() as client, served.client() as other:
        await client.send(wire.Open(context="a"), wire.Text("a", FIRST))
        await served.until(lambda engine: engine.num_placed == 1)
        assert (await get(served.url, "/readyz"))[0] == 200, "nobody was turned away"
        await other.speak("b", FIRST)
        refused = await other.until(wire.Error)
        told = await until_told(served, accepts=False, room=0)
        assert (await get(served.url, "/readyz"))[0] == 503
        assert told["retry_after_ms"] >= (refused.retry_after_ms or 0)
        await client.send(wire.Flush("a"))
        await until_at_rest(served, 0)
        assert (await get(served.url, "/readyz"))[0] == 200
        await other.speak("b", FIRST)
        await other.until_done("b")
