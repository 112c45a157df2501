"""Every bad input gets its clear error, and another socket's stream goes on undisturbed."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import UNSET
from websockets.exceptions import ConnectionClosed

from tests.integration.wire_client import WireClient, serving
from voicegate.engine.fake.engine import Script
from voicegate.protocol import messages as wire

SINGLE_SURROGATE = '{"type":"text","context":"mine","text":"\\ud83d"}'


@contextlib.asynccontextmanager
async def disturbed(script: Script | None = None, **settings: Any) -> AsyncIterator[WireClient]:
    """The socket to misbehave on. A observer on another one speaks before, during and after."""
    async with serving(script, **settings) as served, served.client() as observer, served.client() as client:
        await observer.send(wire.Open(context="w"), wire.Text("w", "before "))
        await observer.until(wire.Opened)
        yield client
        await observer.send(wire.Text("w", "and after"), wire.End("w"))
        done = await observer.until(wire.Done)
        ms_per_character = script.ms_per_character if script else 60
        assert done.audio_ms == 14 * ms_per_character
        assert not any(isinstance(message, wire.Error) for message in observer.heard["w"][0].messages)


async def still_works(client: WireClient) -> None:
    await client.speak("after", "fine")
    assert (await client.until_done("after")).packets


@pytest.mark.parametrize(
    ("raw", "part", "context"),
    [
        ("hello", "not JSON", UNSET),
        ('{"type":"shout"}', "unknown type 'shout'", UNSET),
        ('{"context":"mine"}', "`type` is missing", UNSET),
        ('{"type":"text","context":"mine"}', "missing required field `text`", "mine"),
        ('{"type":"text","context":"mine","text":5}', "Expected `str`, got `int`", "mine"),
        ('{"type":"end","context":["mine"]}', "Expected `str`, got `array`", UNSET),
        ('{"type":"end","context":"' + "x" * 100_000 + '"}', "length <= 64", UNSET),
        (SINGLE_SURROGATE, "not JSON", UNSET),
        (b"\x01\x00audio?", "text messages only", UNSET),
        ("", "not JSON", UNSET),
    ],
)
async def test_what_is_no_message(raw: str | bytes, part: str, context: object) -> None:
    async with disturbed() as client:
        await client.send(wire.Open(context="mine"))
        await client.websocket.send(raw)
        error = await client.until(wire.Error)
        assert (error.code, error.fatal, error.context) == ("bad_message", False, context)
        assert part in error.message
        await client.send(wire.Text("mine", "goes on"), wire.End("mine"))
        assert (await client.until(wire.Done, "mine")).audio_ms == 6 * 60
        await still_works(client)


async def test_unknown_voice() -> None:
    async with disturbed() as client:
        await client.speak("mine", "hello", voice="nobody")
        error = await client.until(wire.Error)
        assert (error.code, error.fatal, error.context) == ("unknown_voice", True, "mine")
        assert "hum, drone" in error.message
        for _ in range(2):  # the text and the end that were on their way
            late = await client.until(wire.Error)
            assert (late.code, late.fatal, late.context) == ("unknown_context", False, "mine")
        await still_works(client)


async def test_ten_thousand_contexts() -> None:
    async with disturbed(messages_per_s=100_000) as client:
        for first in range(0, 10_000, 500):
            await client.send(*(wire.Open(context=f"c{n}") for n in range(first, first + 500)))
            answers = [await client.receive() for _ in range(500)]
            refusals = [answer for answer in answers if isinstance(answer, wire.Error)]
            assert len(refusals) == (500 - 256 if first == 0 else 500)
            assert {(refusal.code, refusal.fatal) for refusal in refusals} == {("too_many_contexts", True)}
            assert "256" in refusals[0].message
        await client.send(wire.End("c0"))
        await client.until(wire.Done, "c0")
        await still_works(client)


async def test_a_context_id_of_ten_megabytes() -> None:
    async with disturbed() as client:
        with contextlib.suppress(ConnectionClosed):  # the server hangs up before it has read all of it
            await client.websocket.send('{"type":"end","context":"' + "x" * 10_000_000 + '"}')
        await client.websocket.wait_closed()
        assert client.websocket.close_code == 1009


async def test_invalid_utf8() -> None:
    async with disturbed() as client:
        await client.send(wire.Open(context="mine"))
        await client.until(wire.Opened)
        await client.websocket.send(b'{"type":"text","context":"mine","text":"\xff"}', text=True)
        await client.websocket.wait_closed()
        assert client.websocket.close_code == 1007


@pytest.mark.parametrize(
    ("text", "audio_ms"),
    [("", 0), (" \n\t ", 0), ("...?!", 0), ("😀👩\u200d👩\u200d👧", 0), ("a\x00b", 8), ("x" * 20_000, 80_000)],
)
async def test_odd_text_is_spoken_or_silent(text: str, audio_ms: int) -> None:
    async with disturbed(Script(ms_per_character=4, chunk_ms=2000)) as client:
        await client.speak("mine", text, format=wire.Format(codec="pcm_s16le"))
        assert (await client.until(wire.Done, "mine")).audio_ms == audio_ms
        assert client.heard["mine"][0].audio[-1].is_last
        await still_works(client)
