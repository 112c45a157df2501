"""Speaking over real sockets: what is heard, in which order, and that nothing crosses over."""

import pytest

from tests.integration.wire_client import Heard, connect_to, pitch_hz, serving
from voicegate.engine.fake.engine import Script, tone_hz
from voicegate.engine.interface import UtteranceId
from voicegate.protocol import messages as wire
from voicegate.protocol.messages import SUBPROTOCOL

MS_PER_CHARACTER = 60
SAMPLES_PER_MS = 48


def check_tone(heard: Heard, number: int, num_characters: int) -> None:
    """All of the audio is there, and it is this utterance's own."""
    samples = heard.decode()
    assert len(samples) == num_characters * MS_PER_CHARACTER * SAMPLES_PER_MS
    assert pitch_hz(samples) == pytest.approx(tone_hz(number), abs=5)


async def test_text_in_tokens_comes_back_as_exactly_its_audio() -> None:
    async with serving() as served, served.client(subprotocols=[SUBPROTOCOL]) as client:
        assert client.websocket.subprotocol == SUBPROTOCOL
        await client.send(wire.Open(context="a"))
        for token in ("Hel", "lo", ", wor", "ld", "!"):
            await client.send(wire.Text("a", token))
        await client.send(wire.End("a"))
        done = await client.until(wire.Done)
        heard = client.heard["a"][0]
        check_tone(heard, 0, num_characters=10)
        assert done.audio_ms == 10 * MS_PER_CHARACTER
        assert done.packets == len(heard.packets)
        assert done.timing.ttfb_ms is not None
        aligned = [m for m in heard.messages if isinstance(m, wire.Alignment)]
        assert [item.text for message in aligned for item in message.items] == ["Hello,", "world!"]
        assert aligned[0].items[0].start_ms == 0


async def test_pcm_ends_exactly() -> None:
    async with serving(Script(ms_per_character=50)) as served, served.client() as client:
        await client.speak("a", "abc", format=wire.Format(codec="pcm_s16le"))
        heard = await client.until_done("a")
        assert heard.opened.pre_skip == 0
        assert [len(packet) for packet in heard.packets] == [960] * 7 + [480]
        assert heard.audio[-1].pts_48k == 150 * SAMPLES_PER_MS


async def test_contexts_interleave_on_one_socket_and_keep_apart() -> None:
    async with serving() as served, served.client() as client:
        for n in range(4):
            await client.send(wire.Open(context=f"c{n}"), wire.Text(f"c{n}", "interleaved "))
        for n in range(4):
            await client.send(wire.End(f"c{n}"))
        for _ in range(4):
            await client.until(wire.Done)
        assert client.arrivals != sorted(client.arrivals), "the contexts took turns"
        for n in range(4):
            check_tone(client.heard[f"c{n}"][0], n, num_characters=11)


async def test_sockets_are_independent_even_with_the_same_context_ids() -> None:
    async with serving() as served, served.client() as one, served.client() as two:
        await one.speak("same", "first socket")
        await one.until(wire.Opened)  # its tone is of the first that the engine is asked for
        await two.speak("same", "second one")
        check_tone(await two.until_done("same"), 1, num_characters=9)
        check_tone(await one.until_done("same"), 0, num_characters=11)


async def test_flush_is_answered_after_its_audio_and_the_context_goes_on() -> None:
    async with serving() as served, served.client() as client:
        await client.send(wire.Open(context="a"), wire.Text("a", "no space"), wire.Flush("a", "f1"))
        flushed = await client.until(wire.Flushed)
        assert (flushed.id, flushed.audio_ms) == ("f1", 7 * MS_PER_CHARACTER)
        assert len(client.heard["a"][0].packets) * 20 == flushed.audio_ms
        await client.send(wire.Text("a", "more"), wire.End("a"))
        check_tone(await client.until_done("a"), 0, num_characters=11)


async def test_a_player_that_pauses_is_known_to_the_engine_until_it_plays_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.session.player._PAUSED_AFTER_S", 0.0)
    async with serving(Script(max_lead_ms=500)) as served, served.client() as client:
        reports = served.engine.reports
        await client.send(wire.Open(context="a"), wire.Text("a", "one "), wire.Playback("a", 20, buffer_ms=200))
        await served.until(lambda _: bool(reports) and not reports[-1][1].is_playing)
        await client.send(wire.Text("a", "two three four five six seven eight nine ten "), wire.End("a"), wire.Ping(1))
        await client.until(wire.Pong)
        assert served.engine.num_live == 1
        await client.send(wire.Playback("a", 40, buffer_ms=0))
        assert (await client.until_done("a")).packets
        assert [report.is_playing for _, report in reports] == [False, True]


async def test_cancel_in_mid_stream_and_the_id_is_free_again() -> None:
    async with serving() as served, served.client() as client:
        text = "word " * 500
        await client.send(wire.Open(context="a"), wire.Text("a", text))
        while not client.heard["a"] or len(client.heard["a"][0].packets) * 20 < 300:
            await client.receive()
        await client.send(wire.Cancel("a", played_ms=240), wire.Cancel("a"))
        cancelled = await client.until(wire.Cancelled)
        assert (cancelled.spoken_text, cancelled.remaining_text) == ("word ", text[5:])
        # The client above fails on audio of an ended context, so any that is late would show from here on.
        await client.speak("a", "again")
        check_tone(await client.until_done("a"), 1, num_characters=5)
        assert len({heard.opened.handle for heard in client.heard["a"]}) == 2


async def test_requests_reach_the_engine_as_asked() -> None:
    async with serving() as served, served.client() as client:
        pace = wire.Pace(lead_ms=60_000)
        await client.speak("a", "x", voice="drone", speed=1.5, seed=9, instruct="low", mode="clause", pace=pace)
        heard = await client.until_done("a")
        (request,) = served.engine.requests
        assert (request.voice, request.speed, request.seed, request.instruct) == ("drone", 1.5, 9, "low")
        assert request.lead_ms == 5_000, "capped at the engine's own"
        assert heard.opened.voice == "drone"
        assert len(request.utterance_id) > 16
        assert request.utterance_id != UtteranceId("a")


async def test_no_compression_and_a_subprotocol_only_if_offered() -> None:
    async with (
        serving() as served,
        connect_to(served.url, subprotocols=["something-else"], compression="deflate") as client,
    ):
        assert client.websocket.subprotocol is None
        assert client.websocket.response is not None
        assert "Sec-WebSocket-Extensions" not in client.websocket.response.headers


async def test_a_burst_and_then_real_time() -> None:
    async with serving() as served, served.client() as client:
        await client.speak("a", "abcdefghij", pace=wire.Pace(burst_ms=200))
        heard = await client.until_done("a")
        check_tone(heard, 0, num_characters=10)
        assert len(heard.audio) > 3
        assert max(len(message.packets) for message in heard.audio) <= 200 // 20
