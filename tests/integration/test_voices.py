"""A voice that comes while sockets are open can be used on them at once, and is listed; one that goes is refused."""

from websockets.asyncio.client import connect

from tests.integration.wire_client import serving
from voicegate.engine.interface import NewVoice
from voicegate.protocol import codec
from voicegate.protocol import messages as wire


async def voices_greeted_with(url: str) -> tuple[str, ...]:
    async with connect(url, compression=None) as websocket:
        raw = await websocket.recv()
    ready = codec.decode_server(str(raw))
    assert isinstance(ready, wire.Ready)
    return ready.voices


async def test_sockets_follow_the_engines_voices() -> None:
    async with serving() as served, served.client() as client:
        before = await voices_greeted_with(served.url)
        await served.engine.add_voice(NewVoice("guest", b"RIFF", description="new"))
        await client.speak("a", "hello", voice="guest")
        assert (await client.until_done("a")).packets
        assert await voices_greeted_with(served.url) == (*before, "guest")
        await served.engine.remove_voice("guest")
        await client.send(wire.Open(context="b", voice="guest"))
        error = await client.until(wire.Error)
        assert (error.code, error.context) == ("unknown_voice", "b")
        assert await voices_greeted_with(served.url) == before
