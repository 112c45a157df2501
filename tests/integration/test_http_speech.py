"""Speech by HTTP: what a gateway makes of requests, of clients that leave, stall or flood, and of its own end."""

import asyncio
import io
from typing import Any

import av
import orjson
import pytest
from structlog.testing import capture_logs

from tests.integration.http_client import PCM, RawRequest, audio_of_events, base_url, native_packets, native_pcm, post
from tests.integration.raw_client import get
from tests.integration.wire_client import TIMEOUT_S, connect_to, running, serving
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.engine.interface import Overloaded
from voicegate.protocol import messages as wire
from voicegate.protocol.ogg import OggOpusMuxer

SPEECH = "/v1/audio/speech"
TEXT = "Hello there, and more."
STALL = Fault(FaultKind.STALL, after_ms=240)


def asked(text: str = TEXT, **fields: Any) -> dict[str, Any]:
    return {"input": text, "model": "tts-1", "voice": "alloy", "response_format": "pcm", **fields}


# --- what is heard ----------------------------------------------------------------------------------------


async def test_it_is_what_a_native_client_hears() -> None:
    expected = await native_pcm(TEXT)
    async with serving() as served:
        status, headers, body = await post(served.url, SPEECH, asked())
    assert (status, headers["content-type"], headers["x-voice"]) == (200, "audio/pcm", "hum")
    assert headers["character-cost"] == str(len(TEXT))
    assert body == expected
    async with serving() as served:
        _, headers, body = await post(served.url, SPEECH, asked(response_format="wav"))
    assert (headers["content-type"], body[:4], body[44:]) == ("audio/wav", b"RIFF", expected)
    async with serving() as served:
        _, headers, body = await post(served.url, SPEECH, asked(stream_format="sse"))
    assert headers["content-type"].startswith("text/event-stream")
    assert audio_of_events(body) == expected
    *_, done, _last, rest = body.split(b"\n\n")
    assert rest == b""
    usage = orjson.loads(done.removeprefix(b"data: "))["usage"]
    assert usage["input_tokens"] == len(TEXT)
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > len(TEXT)


async def test_opus_is_the_engines_own_packets() -> None:
    packets = await native_packets(TEXT)
    async with serving() as served:
        _, headers, body = await post(served.url, SPEECH, asked(response_format="opus"))
    assert headers["content-type"] == "audio/ogg"
    assert all(packet in body for packet in packets)
    assert body.startswith(OggOpusMuxer(pre_skip_48k=312).headers()[:28])


async def test_a_voice_is_ours_or_an_alias_or_the_default() -> None:
    async with serving(voice_aliases="nova=drone, echo=nobody") as served:
        for voice, expected in (("drone", "drone"), ("nova", "drone"), ("echo", "hum"), ("alloy", "hum")):
            _, headers, _ = await post(served.url, SPEECH, asked(voice=voice))
            assert headers["x-voice"] == expected
        _, headers, _ = await post(served.url, SPEECH, asked(voice={"id": "nova"}))
        assert headers["x-voice"] == "drone"
        assert [request.voice for request in served.engine.requests] == ["drone", "drone", "hum", "hum", "drone"]


async def test_an_alias_of_no_voice_is_in_the_log() -> None:
    with capture_logs() as logs:
        async with serving(voice_aliases="nova=drone, echo=nobody"):
            pass
    assert {
        "event": "voice_aliases_of_no_voice",
        "aliases": {"echo": "nobody"},
        "instead": "hum",
        "log_level": "warning",
    } in logs


async def test_what_is_asked_for_reaches_the_engine() -> None:
    async with serving() as served:
        await post(served.url, SPEECH, asked(speed=1.5, instructions="Softly.", seed=7, unknown=[1]))
        (request,) = served.engine.requests
        assert (request.speed, request.instruct, request.seed) == (1.5, "Softly.", 7)
        assert request.lead_ms == 5_000, "as far ahead as the engine goes"


async def test_text_without_anything_to_say_is_an_empty_file() -> None:
    async with serving() as served:
        for text in ("", " \n", "..."):
            assert (await post(served.url, SPEECH, asked(text)))[::2] == (200, b"")
        status, _, body = await post(served.url, SPEECH, asked(" ", response_format="wav"))
        assert (status, len(body)) == (200, 44)


@pytest.mark.parametrize("response_format", ["mp3", "aac", "flac", "opus"])
async def test_text_without_anything_to_say_is_a_file_that_can_be_opened(response_format: str) -> None:
    async with serving() as served:
        status, _, body = await post(served.url, SPEECH, asked("...", response_format=response_format))
    assert status == 200
    with av.open(io.BytesIO(body)) as file:
        samples = [frame.to_ndarray() for frame in file.decode(audio=0)]
    assert all(abs(block).max() < 1e-3 for block in samples)


async def test_a_refused_request_is_in_the_log_by_its_name() -> None:
    async with serving() as served:
        with capture_logs() as lines:
            status, headers, _ = await post(served.url, SPEECH, asked(response_format="speex"))
    assert status == 400
    (line,) = [line for line in lines if line["event"] == "a request is refused"]
    assert (line["session"], line["code"]) == (headers["x-request-id"], "unsupported_format")


async def test_a_long_text_goes_in_parts() -> None:
    text = "é" * 300
    expected = await native_pcm(text)
    async with serving(text_bytes=100) as served:
        assert (await post(served.url, SPEECH, asked(text)))[2] == expected


async def test_http_1_0() -> None:
    expected = await native_pcm(TEXT)
    async with serving() as served:
        body = orjson.dumps(asked()).decode()
        status, _, answer = await exchange_bytes(
            served.url, f"POST {SPEECH} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        )
    assert (status, answer) == (200, expected)


async def test_a_whole_url_is_asked_for_as_its_path_is() -> None:
    expected = await native_pcm(TEXT)
    async with serving() as served:
        assert (await get(served.url, f"{base_url(served.url)}/v1/voices"))[0] == 200
        status, _, answer = await post(served.url, f"{base_url(served.url)}{SPEECH}", asked())
    assert (status, answer) == (200, expected)


async def exchange_bytes(url: str, request: str) -> tuple[int, bytes, bytes]:
    raw = await RawRequest.raw(url, request.encode())
    head, _, body = raw.partition(b"\r\n\r\n")
    return int(head.split()[1]), head, body


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "field", "part"),
    [
        (b"hello", None, "JSON"),
        (b"", None, "no body"),
        (b"\xff", None, "JSON"),
        (b'{"input": "\\ud800"}', None, "JSON"),
        (b'{"input": "x", "deep": ' + b"[" * 200_000, None, "nested too deeply"),
        ({"model": "tts-1"}, "input", "missing required field"),
        ({"input": 5}, "input", "str"),
        (asked(speed=9), "speed", "<= 4.0"),
        (asked(speed="fast"), "speed", "float"),
        (asked(seed=-1), "seed", ">= 0"),
        (asked(response_format="ogg3"), None, "mp3, opus, aac, flac, wav, pcm"),
        (asked(stream_format="carrier pigeon"), "stream_format", "carrier"),
        (asked("x" * 2000), None, "2000 bytes"),
    ],
)
async def test_a_bad_request_says_what_is_wrong(body: dict[str, Any] | bytes, field: str | None, part: str) -> None:
    async with serving(context_text_bytes=1000) as served:
        status, headers, answer = await post(served.url, SPEECH, body)
        error = orjson.loads(answer)["error"]
        assert (status, headers["content-type"]) == (400, "application/json")
        assert (error["type"], error["param"]) == ("invalid_request_error", field)
        assert part in error["message"]
        assert served.engine.num_live == 0


async def test_no_room_is_told_with_when_there_will_be() -> None:
    script = Script(max_utterances=1, faults={0: STALL}, refusals={1: Overloaded("full", retry_after_ms=2100)})
    async with serving(script, waiting_s=0.0) as served:
        first = await RawRequest.post(served.url, SPEECH, asked())
        await first.head()
        status, headers, answer = await post(served.url, SPEECH, asked())
        assert (status, headers["retry-after"]) == (503, "3")
        assert orjson.loads(answer)["error"]["code"] == "overloaded"
        await first.close()
        await served.until(lambda engine: engine.num_live == 0)
        assert (await post(served.url, SPEECH, asked()))[0] == 200


async def test_it_waits_in_line_as_native_contexts_do() -> None:
    script = Script(max_utterances=1, faults={0: STALL})
    async with serving(script, waiting_s=60.0) as served, served.client() as client:
        await client.send(wire.Open(context="a"), wire.Text("a", "first"))
        await served.until(lambda engine: engine.num_live == 1)
        second = asyncio.create_task(post(served.url, SPEECH, asked()))
        while '"waiting":1' not in (await get(served.url, "/v1/capacity"))[2]:
            pass
        await client.send(wire.Cancel("a"))
        assert (await second)[0] == 200


async def test_an_address_has_its_quotas() -> None:
    async with serving(Script(faults={0: STALL}), sockets_per_address=1) as served:
        first = await RawRequest.post(served.url, SPEECH, asked())
        await first.head()
        status, headers, answer = await post(served.url, SPEECH, asked())
        assert (status, headers["retry-after"]) == (429, "1")
        assert orjson.loads(answer)["error"]["type"] == "rate_limit_error"
        assert (await get(served.url, "/v1/capacity"))[2].count('"sockets":1') == 1
        await first.close()
        await served.until(lambda engine: engine.num_live == 0)
        assert (await post(served.url, SPEECH, asked()))[0] == 200


async def test_a_page_of_another_site_makes_no_speech() -> None:
    async with serving() as served:
        status, _, answer = await post(served.url, SPEECH, asked(), "Origin: https://evil.example")
        assert (status, b"--allowed-origins" in answer) == (403, True)
        assert served.engine.requests == []


# --- clients that leave, and ends ---------------------------------------------------------------------------


async def test_who_leaves_is_not_spoken_to_any_further() -> None:
    async with serving(Script(faults={0: STALL, 1: Fault(FaultKind.STALL)})) as served:
        hears = await RawRequest.post(served.url, SPEECH, asked())
        assert await hears.head()
        await hears.chunk()
        waits = await RawRequest.post(served.url, SPEECH, asked())  # for its first audio
        await served.until(lambda engine: engine.num_live == 2)
        for request, num_left in ((hears, 1), (waits, 0)):
            request.writer.transport.abort()
            await served.until(lambda engine, num=num_left: engine.num_live == num)
        assert len(served.engine.cancels) == 2


@pytest.mark.parametrize("num_characters", [3_000, 20_000], ids=["the stall", "too much waits"])
async def test_who_reads_nothing_is_cut(num_characters: int) -> None:
    async with running(FakeEngine(), write_stall_s=0.3) as served:
        request = await RawRequest.post(served.gateway.url, SPEECH, asked("x" * num_characters))
        await request.head()
        request.writer.transport.pause_reading()  # type: ignore[attr-defined]
        assert len(served.gateway.guests) == 1
        assert await served.gateway.guests.wait_until_empty(TIMEOUT_S)
        status, _, _ = await post(served.gateway.url, SPEECH, asked())
        assert status == 200
        request.writer.transport.abort()


async def test_speech_that_fails_breaks_off() -> None:
    script = Script(faults={0: Fault(FaultKind.FAIL), 1: Fault(FaultKind.FAIL, 240), 2: Fault(FaultKind.FAIL, 240)})
    async with serving(script) as served:
        status, headers, answer = await post(served.url, SPEECH, asked())
        assert (status, orjson.loads(answer)["error"]["type"]) == (500, "server_error")
        assert headers["x-request-id"]
        request = await RawRequest.post(served.url, SPEECH, asked())
        assert (await request.head())[0] == 200
        with pytest.raises(asyncio.IncompleteReadError):
            await request.body()
        await request.close()
        _, _, events = await post(served.url, SPEECH, asked(stream_format="sse"))
        assert orjson.loads(events.split(b"\n\n")[-2].removeprefix(b"data: "))["error"]["code"] == "engine_failed"


async def test_a_drain_lets_speech_finish_and_refuses_more() -> None:
    async with running(FakeEngine(), drain_s=60.0, write_stall_s=60.0) as served:
        url = served.gateway.url
        request = await RawRequest.post(url, SPEECH, asked("x" * 3_000))  # more than there is room for until it is read
        await request.head()
        served.stop.set()
        while (await get(url, "/readyz"))[0] != 503:
            pass
        status, _, answer = await post(url, SPEECH, asked())
        assert (status, b"draining" in answer) == (503, True)
        assert await request.body()
        await request.close()
        assert await served.exit_status == 0


async def test_a_drain_refuses_whose_body_is_still_under_way() -> None:
    engine = FakeEngine(Script(faults={0: STALL}))
    async with running(engine, drain_s=60.0) as served:
        url, body = served.gateway.url, orjson.dumps(asked())
        first = await RawRequest.post(url, SPEECH, asked())  # keeps the server there
        await first.head()
        late = await RawRequest.begin(url, SPEECH, len(body))
        while '"sockets":2' not in (await get(url, "/v1/capacity"))[2]:
            pass
        served.stop.set()
        while (await get(url, "/readyz"))[0] != 503:
            pass
        late.writer.write(body)
        assert (await late.head())[0] == 503
        for request in (first, late):
            await request.close()
        assert await served.exit_status == 0
        assert len(engine.requests) == 1


async def test_before_the_engine_is_ready() -> None:
    engine = FakeEngine(trouble="no encoder is alive")
    async with running(engine) as served:
        status, headers, answer = await post(served.gateway.url, SPEECH, asked())
        assert (status, headers["retry-after"]) == (503, "1")
        assert orjson.loads(answer)["error"]["message"] == "no encoder is alive"


async def test_many_at_once_hear_themselves() -> None:
    texts = [f"{'word ' * (n % 7 + 1)}" for n in range(40)]
    async with serving() as served, connect_to(served.url) as client:
        kinds = ["pcm", "mp3", "opus", "flac"]
        answers = await asyncio.gather(
            *(post(served.url, SPEECH, asked(text, response_format=kinds[n % 4])) for n, text in enumerate(texts))
        )
        for n, (status, _, body) in enumerate(answers):
            assert status == 200
            if n % 4 == 0:
                assert len(body) == 2 * 24 * 60 * 4 * (n % 7 + 1)
        await client.speak("a", "still here", format=PCM)
        assert (await client.until_done("a")).packets
