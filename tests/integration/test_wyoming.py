"""Wyoming, by the package's own client over real sockets: a text whole, and as it is written."""

import asyncio
import contextlib
import dataclasses
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from structlog.testing import capture_logs
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event, Eventable
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from tests.integration.wire_client import TIMEOUT_S, Running, native_turns, running
from tests.support.snippets import snippets
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.engine.interface import EngineInfo, VoiceInfo
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.config_fields import ConfigError
from voicegate.gateway.server import announcement, wyoming
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.server import EXIT_OK, Gateway

MAX_BYTES = 1024 * 1024  # `max_message_bytes`


class Polyglot(FakeEngine):
    """With voices of which it is known what their recordings speak."""

    @property
    def info(self) -> EngineInfo:
        voices = (VoiceInfo("hum", "", language="en"), VoiceInfo("drone", "", language="zh"))
        return dataclasses.replace(super().info, voices=voices)


class Client(AsyncTcpClient):
    async def send(self, *messages: Eventable) -> None:
        for message in messages:
            await self.write_event(message.event())

    async def next(self) -> Event:
        event = await self.read_event()
        assert event is not None, "the server hung up"
        return event

    async def until(self, kind: type[Eventable]) -> list[Event]:
        """All that comes, up to the first of that kind."""
        events = [await self.next()]
        while not kind.is_type(events[-1].type):
            events.append(await self.next())
        return events

    async def send_raw(self, raw: bytes) -> None:
        assert self._writer is not None
        self._writer.write(raw)
        await self._writer.drain()

    async def failure(self) -> Error:
        """The last that is heard: behind it the server hangs up."""
        error = Error.from_event((await self.until(Error))[-1])
        assert await self.read_event() is None
        return error


@contextlib.asynccontextmanager
async def serving(engine: FakeEngine | None = None, **settings: Any) -> AsyncIterator[Running]:
    async with running(engine or FakeEngine(), wyoming_port=0, **settings) as served:
        yield served


@contextlib.asynccontextmanager
async def connected(served: Running) -> AsyncIterator[Client]:
    port = served.gateway.wyoming_port
    assert port is not None
    client = Client("127.0.0.1", port)
    await client.connect()
    try:
        yield client
    finally:
        with contextlib.suppress(ConnectionError):
            await client.disconnect()


def sound(events: list[Event]) -> bytes:
    return b"".join(AudioChunk.from_event(event).audio for event in events if AudioChunk.is_type(event.type))


# --- describe ---------------------------------------------------------------------------------------------


async def test_describe() -> None:
    async with serving(Polyglot()) as served, connected(served) as client:
        await client.send(Describe())
        (program,) = Info.from_event((await client.until(Info))[-1]).tts
        assert program.supports_synthesize_streaming
        assert {voice.name: voice.languages for voice in program.voices} == {"hum": ["en", "zh"], "drone": ["zh", "en"]}
        await client.send(Ping(text="there?"))
        assert Pong.from_event(await client.next()).text == "there?"


async def test_events_of_other_services_are_dropped() -> None:
    async with serving() as served, connected(served) as client:
        await client.send(AudioChunk(16_000, 2, 1, bytes(320)), AudioStop())
        await client.send(Describe())
        assert Info.is_type((await client.next()).type)


# --- speech -----------------------------------------------------------------------------------------------


async def test_synthesize_is_heard_as_by_a_native_client() -> None:
    async with serving() as served, connected(served) as client:
        await client.send(Synthesize("First one."), Synthesize("And two."))
        turns = [await client.until(AudioStop), await client.until(AudioStop)]
    for events in turns:
        start = AudioStart.from_event(events[0])
        assert (start.rate, start.width, start.channels) == (24_000, 2, 1)
        times = [AudioChunk.from_event(event).timestamp for event in events[1:-1]]
        assert times[0] == 0
        assert times == sorted(times)
    assert [sound(events) for events in turns] == await native_turns(["First one.", "And two."])


async def test_audio_comes_before_the_last_text() -> None:
    """And the whole text, which clients send once more for servers that do not stream, is not spoken again."""
    async with serving() as served, connected(served) as client:
        await client.send(SynthesizeStart(), SynthesizeChunk("Here is a sentence. "), SynthesizeChunk("And "))
        events = await client.until(AudioChunk)
        await client.send(SynthesizeChunk("more."), Synthesize("Here is a sentence. And more."), SynthesizeStop())
        events += await client.until(SynthesizeStopped)
        await client.send(Synthesize("Next."))
        next_events = await client.until(AudioStop)
    assert [events[0].type, *(event.type for event in events[-2:])] == [
        "audio-start",
        "audio-stop",
        "synthesize-stopped",
    ]
    expected = await native_turns(["Here is a sentence. And more.", "Next."])
    assert [sound(events), sound(next_events)] == expected


async def test_nothing_to_say() -> None:
    async with serving() as served, connected(served) as client:
        await client.send(SynthesizeStart(), SynthesizeStop())
        assert sound(await client.until(SynthesizeStopped)) == b""


@pytest.mark.parametrize(
    ("voice", "spoken"),
    [
        (None, ("hum", None)),
        (SynthesizeVoice(name="drone"), ("drone", None)),
        (SynthesizeVoice(language="zh-CN"), ("drone", "zh-CN")),
        (SynthesizeVoice(language="en"), ("hum", "en")),
        (SynthesizeVoice(language="fi"), ("hum", None)),  # the model speaks none
        (SynthesizeVoice(name="nobody"), ("hum", None)),  # as for every vendor's client
        (SynthesizeVoice(name="nova"), ("drone", None)),  # an alias
    ],
)
async def test_voices(voice: SynthesizeVoice | None, spoken: tuple[str, str | None]) -> None:
    engine = Polyglot()
    async with serving(engine, voice_aliases="nova=drone") as served, connected(served) as client:
        await client.send(Synthesize("Hello.", voice=voice))
        await client.until(AudioStop)
    (request,) = engine.requests
    assert (request.voice, request.language) == spoken


# --- what goes wrong --------------------------------------------------------------------------------------


async def test_who_hangs_up_is_not_spoken_to() -> None:
    engine = FakeEngine(Script(faults={0: Fault(FaultKind.STALL, after_ms=120)}))
    async with serving(engine) as served:
        async with connected(served) as client:
            await client.send(Synthesize("A text that takes long."))
            await client.until(AudioChunk)
        await engine.until(lambda: len(engine.cancels) == 1)
        async with connected(served) as client:  # others are served
            await client.send(Synthesize("Fine."))
            assert sound(await client.until(AudioStop))


def test_who_resets_the_connection_is_no_failure_of_ours() -> None:
    """On uvloop, as `serve` runs: its transports raise another error for a write to a closed one."""

    async def reset_many() -> None:
        async with serving() as served:
            for _ in range(100):
                async with connected(served) as client:
                    await client.send(Ping(), SynthesizeChunk("without its start"), Synthesize("x"))
                    assert client._writer is not None
                    client._writer.transport.abort()
            assert await served.gateway.guests.wait_until_empty(TIMEOUT_S)

    with capture_logs() as lines, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(reset_many())
    assert [line for line in lines if line["event"] == "socket failed"] == []


async def test_who_does_not_read_is_cut() -> None:
    async with serving(write_stall_s=0.05) as served, connected(served) as client:
        await client.send(Synthesize("five " * 1000))  # 12 MB of sound, more than the kernel takes
        await client.until(AudioStart)
        assert await served.gateway.guests.wait_until_empty(TIMEOUT_S)


async def test_a_flood_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wyoming, "_FLOOD_PATIENCE_S", 0.0)
    async with serving(messages_per_s=10) as served, connected(served) as client:
        await client.send(*[Ping()] * 100)
        assert (await client.failure()).code == "rate_limited"


async def test_failed_speech_is_told_and_ends_the_connection() -> None:
    engine = FakeEngine(Script(faults={0: Fault(FaultKind.FAIL, after_ms=120)}))
    async with serving(engine) as served, connected(served) as client:
        await client.send(Synthesize("A text that fails."))
        assert (await client.failure()).code == "engine_failed"


LONG = b'{"type": "synthesize", "data": {"text": "' + b"x" * MAX_BYTES


@pytest.mark.parametrize(
    ("raw", "part"),
    [
        (LONG, f"at most {MAX_BYTES} bytes"),
        (b'{"type": "synthesize", "data_length": 99999999999}\n', f"at most {MAX_BYTES} bytes"),
        (b'{"type": "audio-chunk", "payload_length": 99999999999}\n', f"at most {MAX_BYTES} bytes"),
        (b"GET / HTTP/1.1\r\n", "no Wyoming event"),
        (b"[1]\n", "no Wyoming event"),
        (b'{"data": {}}\n', "no Wyoming event"),
        (b'{"type": "describe", "data_length": "many"}\n', "no Wyoming event"),
        (b'{"type": "synthesize", "data": {"text": "\\ud83d"}}\n', "no Wyoming event"),
        (b"[" * 100_000 + b"\n", "no Wyoming event"),
        (b'{"type": "synthesize", "data": {"text": 5}}\n', "text"),
        (b'{"type": "synthesize"}\n', "synthesize without `text`"),
        (b'{"type": "ping", "data": {"text": "%s"}}\n' % (b"x" * 257), "length <= 256"),  # it would wait to be read
        (b'{"type": "ping", "data": {"text": ["x"]}}\n', "data.text"),
        (b'{"type": "synthesize", "data": {"text": "<a/>", "text_format": "ssml"}}\n', "send plain text"),
        (b'{"type": "synthesize-chunk", "data": {"text": "x"}}\n', "without synthesize-start"),
        (b'{"type": "synthesize-start"}\n{"type": "synthesize-start"}\n', "before synthesize-stop"),
        (b'{"type": "synthesize", "data": {"text": "x", "voice": {"name": "hum+drone"}}}\n', "hum+drone"),
    ],
)
async def test_what_is_not_to_be_spoken(raw: bytes, part: str) -> None:
    """Another peer's speech goes on."""
    async with serving() as served, connected(served) as observer, connected(served) as client:
        await observer.send(SynthesizeStart(), SynthesizeChunk("Before it. "))
        await observer.until(AudioStart)
        await client.send_raw(raw)
        assert part in (await client.failure()).text
        await observer.send(SynthesizeChunk("And after."), SynthesizeStop())
        assert sound(await observer.until(SynthesizeStopped))


async def test_no_more_connections_than_sockets() -> None:
    async with serving(sockets_per_address=1) as served, connected(served) as first:
        await first.send(Describe())
        await first.until(Info)
        async with connected(served) as second:
            assert "1 sockets are open from your address" in (await second.failure()).text


async def test_drain_lets_speech_finish_and_nobody_in() -> None:
    async with serving() as served, connected(served) as idle, connected(served) as client:
        await idle.send(Describe())
        await idle.until(Info)
        await client.send(SynthesizeStart(), SynthesizeChunk("Here is a sentence. "))
        await client.until(AudioChunk)
        served.stop.set()
        assert await idle.read_event() is None
        async with connected(served) as late:
            assert "draining" in (await late.failure()).text
        await client.send(SynthesizeChunk("And more."), SynthesizeStop())
        assert sound(await client.until(SynthesizeStopped))
        assert await client.read_event() is None
        assert await served.exit_status == EXIT_OK


# --- settings ---------------------------------------------------------------------------------------------


async def test_it_is_off_by_default() -> None:
    async with running(FakeEngine()) as served:
        assert served.gateway.wyoming_port is None


def test_not_beside_keys() -> None:
    with pytest.raises(ConfigError, match="would speak without one"):
        GatewayConfig(wyoming_port=0, api_key="0123456789abcdef")


async def test_a_port_that_is_taken() -> None:
    async with asyncio.timeout(TIMEOUT_S), serving() as served:
        port = served.gateway.wyoming_port
        with pytest.raises(GatewayError, match=f"127.0.0.1:{port} for Wyoming.*--wyoming-port"):
            await Gateway(GatewayConfig(port=0, wyoming_port=port), FakeEngine()).serve_until(asyncio.Event())


# --- found on the network ---------------------------------------------------------------------------------


async def test_home_assistant_finds_it_by_its_name_while_it_is_there() -> None:
    settings: dict[str, Any] = {"wyoming_port": 0, "wyoming_zeroconf": "gate-under-test"}
    name = f"gate-under-test.{announcement.SERVICE}"
    browser = AsyncZeroconf(interfaces=["127.0.0.1"])
    try:
        async with running(FakeEngine(), **settings) as served:
            found = AsyncServiceInfo(announcement.SERVICE, name)
            assert await found.async_request(browser.zeroconf, 1000 * TIMEOUT_S)
            assert (found.parsed_addresses(), found.port) == (["127.0.0.1"], served.gateway.wyoming_port)
    finally:
        await browser.async_close()


async def test_a_name_that_another_server_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"wyoming_port": 0, "wyoming_zeroconf": "gate-with-a-twin"}
    async with running(FakeEngine(), **settings):
        monkeypatch.setattr(announcement, "_ANSWER_MS", 10_000)  # the machine may be busy
        with pytest.raises(GatewayError, match="--wyoming-zeroconf gate-with-a-twin: another server has that name"):
            await Gateway(GatewayConfig(port=0, **settings), FakeEngine()).serve_until(asyncio.Event())


def test_a_name_without_a_port_is_refused() -> None:
    with pytest.raises(ConfigError, match="wyoming_port is not"):
        GatewayConfig(wyoming_zeroconf="voicegate")


async def test_the_lines_of_the_document_run(tmp_path: Path) -> None:
    (lines,) = [each.code for each in snippets() if each.language == "python" and "wyoming" in each.code]
    async with serving() as served:
        program = tmp_path / "program.py"
        program.write_text(lines.replace("10200", str(served.gateway.wyoming_port)))
        pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.STDOUT}
        process = await asyncio.create_subprocess_exec(sys.executable, program, **pipes)
        async with asyncio.timeout(TIMEOUT_S):
            printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()
    assert b"audio-chunk" in printed
    assert printed.splitlines()[-1].startswith(b"audio-stop")
