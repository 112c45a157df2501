"""Metrics of a server that people have used, over a real socket."""

import asyncio
import socket
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.integration.http_client import post
from tests.integration.raw_client import get
from tests.integration.resuming_client import resuming, wait_for_nobody
from tests.integration.wire_client import TIMEOUT_S, Running, connect_to, running
from voicegate.engine.fake.engine import FakeEngine, Script
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.server import Gateway
from voicegate.protocol import messages as wire


class Scrape:
    def __init__(self, text: str) -> None:
        self._samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def __len__(self) -> int:
        return len(self._samples)

    def __call__(self, name: str, **labels: str) -> float:
        return self._samples[f"voicegate_{name}", frozenset(labels.items())]


def fetch(url: str, headers: Mapping[str, str] | None = None) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers or {})), timeout=TIMEOUT_S) as answer:
        text: str = answer.read().decode()
        return text


async def scrape(served: Running) -> Scrape:
    assert served.gateway.metrics_url is not None
    return Scrape(await asyncio.to_thread(fetch, served.gateway.metrics_url))


async def test_what_was_served_is_counted() -> None:
    async with running(FakeEngine(Script(max_utterances=1)), metrics_port=0, waiting_s=0.0) as served:
        before = await scrape(served)
        assert (before("ready"), before("contexts_ended_total", outcome="done")) == (1, 0)
        async with connect_to(served.gateway.url) as client:
            await client.speak("whole", "ten letters")
            await client.until(wire.Done)
            await client.send(wire.Open(context="cut"), wire.Text("cut", "interrupted "))
            await client.until(wire.Alignment)
            await client.speak("one too many", "refused")
            assert (await client.until(wire.Error)).code == "overloaded"
            during = await scrape(served)
            assert (during("sockets"), during("contexts"), during("utterances")) == (1, 1, 1)
            assert during("utterances_limit") == 1
            await client.send(wire.Playback("cut", played_ms=40, underruns=2), wire.Cancel("cut"))
            await client.until(wire.Cancelled)
            # Both players go on with what they have, and report.
            await client.send(wire.Playback("cut", 80, underruns=3), wire.Playback("whole", 200, underruns=1))
            await client.send(wire.Open(context="left"), wire.Text("left", "alone "), wire.Ping())
            await client.until(wire.Pong)
        assert (await get(served.gateway.url, "/nowhere"))[0] == 404
        with pytest.raises(InvalidStatus):
            await connect(served.gateway.url.replace("/v1/stream", "/v2/stream"))
        while (after := await scrape(served))("contexts") > 0:
            pass  # the server hears of the end after the client
    ends = {outcome: after("contexts_ended_total", outcome=outcome) for outcome in ("done", "cancelled", "overloaded")}
    assert ends == {"done": 1, "cancelled": 1, "overloaded": 1}
    assert after("contexts_ended_total", outcome="disconnected") == 1
    assert after("errors_total", code="overloaded") == 1
    assert after("listener_underruns_total") == 4
    assert after("sockets_opened_total") == 1
    assert after("upgrades_refused_total", status="404") == 1
    assert after("http_responses_total", status="404") == 1
    assert after("text_characters_total") == len("ten letters" + "interrupted " + "refused" + "alone ")
    assert after("audio_seconds_total") >= 0.6
    assert after("ttfb_seconds_count") >= 2
    assert after("synthesis_ttfb_seconds_count") == after("ttfb_seconds_count")
    assert after("engine_stage_seconds_count", stage="first_packet") == 1
    assert after("admission_wait_seconds_count") == 3
    assert after("lowest_lead_seconds_count") >= 1


async def test_who_comes_back_or_does_not_is_counted() -> None:
    outcomes = ("resumed", "refused", "expired", "given_up")
    async with running(FakeEngine(), metrics_port=0) as served:
        async with resuming(served.gateway.url) as client:
            await client.send(wire.Open(context="a"), wire.Text("a", "x" * 100), wire.Flush("a"))
            await client.until(wire.Flushed)
            kept = (await scrape(served))("resume_kept_bytes")
            assert kept > sum(map(len, client.frames))
            client.drop()
            while (await scrape(served))("sessions_absent") == 0:
                pass  # the server hears of it after the client
            await client.come_back()
            assert (await scrape(served))("sessions_absent") == 0
            await client.dial()
            await client.ask(token="forged")
            await client.until(wire.Error)
            wait_for_nobody(served)
        while (told := await scrape(served))("session_returns_total", outcome="expired") == 0:
            pass
    assert [told("session_returns_total", outcome=outcome) for outcome in outcomes] == [1, 1, 1, 0]
    assert told("resume_kept_bytes") == 0
    assert told("sessions_absent") == 0


async def test_who_is_refused_by_http_is_counted_once() -> None:
    async with running(FakeEngine(Script(max_utterances=1)), metrics_port=0, waiting_s=0.0) as served:
        body = {"model": "tts-1", "voice": "hum", "input": "no room"}
        async with connect_to(served.gateway.url) as client:
            await client.send(wire.Open(context="speaks"), wire.Text("speaks", "takes the only place "))
            await client.until(wire.Alignment)
            assert (await post(served.gateway.url, "/v1/audio/speech", body))[0] == 503
        assert (await post(served.gateway.url, "/v1/audio/speech", {**body, "speed": 9}))[0] == 400
        told = await scrape(served)
    assert told("errors_total", code="overloaded") == 1
    assert told("errors_total", code="bad_message") == 1
    assert told("http_responses_total", status="503") == 1


async def test_nothing_that_clients_choose_makes_series() -> None:
    async with running(FakeEngine(), metrics_port=0) as served:
        sizes = set()
        for number in range(3):
            headers = {"X-Client-Tag": f"tag {number}"}
            async with connect_to(served.gateway.url, additional_headers=headers) as client:
                await client.speak(f"context {number}", "x", voice=("hum", "drone")[number % 2])
                await client.until(wire.Done)
                await client.send(wire.Open(context="refused", voice=f"nobody {number}"))
                await client.until(wire.Error)
                await get(served.gateway.url, f"/nowhere/{number}")
            sizes.add(len(await scrape(served)))
        assert len(sizes) == 1


async def test_clients_with_a_tag_that_is_listed_are_counted_by_it() -> None:
    async with running(FakeEngine(), metrics_port=0, metric_tags="kiosk, app") as served:
        for tag, text in (("kiosk", "ten letters"), ("unheard of", "four"), (None, "x")):
            headers = {} if tag is None else {"X-Client-Tag": tag}
            async with connect_to(served.gateway.url, additional_headers=headers) as client:
                await client.speak("a", text)
                await client.until(wire.Done)
        told = await scrape(served)
    counted = {tag: told("client_text_characters_total", tag=tag) for tag in ("kiosk", "app", "other")}
    assert counted == {"kiosk": len("ten letters"), "app": 0, "other": 5}
    assert told("client_contexts_ended_total", tag="other") == 2
    assert told("client_audio_seconds_total", tag="kiosk") == pytest.approx(0.6, abs=0.05)


async def test_it_is_told_while_the_event_loop_is_held_up() -> None:
    async with running(FakeEngine(), metrics_port=0) as served:
        assert served.gateway.metrics_url is not None
        text = fetch(served.gateway.metrics_url)  # nothing else runs on this loop before it returns
        assert Scrape(text)("ready") == 1


async def test_a_rebound_page_reads_none() -> None:
    async with running(FakeEngine(), metrics_port=0) as served:
        assert served.gateway.metrics_url is not None
        with pytest.raises(urllib.error.HTTPError) as caught:
            await asyncio.to_thread(fetch, served.gateway.metrics_url, {"Host": "evil.example:9090"})
        caught.value.close()
        assert caught.value.code == 403
        assert "ready" in await asyncio.to_thread(fetch, served.gateway.metrics_url, {"Host": "localhost:9090"})


async def test_who_hangs_up_or_says_nothing_is_not_told_of_past_the_log(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("voicegate.gateway.server.metrics.exporter._Handler.timeout", 0.05)
    async with running(FakeEngine(), metrics_port=0) as served:
        address = urlsplit(served.gateway.metrics_url)
        with socket.create_connection((address.hostname, address.port), TIMEOUT_S) as silent:
            assert await asyncio.to_thread(silent.recv, 1) == b"", "it has had its time"
        monkeypatch.undo()  # a busy machine may take as long to ask
        with socket.create_connection((address.hostname, address.port), TIMEOUT_S) as resetting:
            resetting.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await scrape(served)
        for thread in threading.enumerate():
            if "process_request_thread" in thread.name:
                await asyncio.to_thread(thread.join)
    assert "Traceback" not in capfd.readouterr().err


async def test_a_start_asks_no_name_server_for_this_machines_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(name: str = "") -> str:
        raise AssertionError("it may take as long as it likes")

    monkeypatch.setattr(socket, "getfqdn", ask)
    async with running(FakeEngine(), metrics_port=0, metrics_host="0.0.0.0") as served:
        assert (await scrape(served))("ready") == 1


async def test_where_none_is_asked_for_no_port_is_open() -> None:
    async with running(FakeEngine()) as served:
        assert served.gateway.metrics_url is None
        assert (await get(served.gateway.url, "/metrics"))[0] == 404


async def test_it_ends_with_the_server() -> None:
    async with running(FakeEngine(), metrics_port=0) as served:
        pass
    assert served.gateway.metrics_url is not None
    with pytest.raises(urllib.error.URLError):
        await asyncio.to_thread(fetch, served.gateway.metrics_url)


async def test_a_taken_port_is_named() -> None:
    async with running(FakeEngine(), metrics_port=0) as served:
        assert served.gateway.metrics_url is not None
        port = int(served.gateway.metrics_url.split(":")[2].removesuffix("/metrics"))
        with pytest.raises(GatewayError, match=f"127.0.0.1:{port} for /metrics.*--metrics-port"):
            await Gateway(GatewayConfig(port=0, metrics_port=port), FakeEngine()).serve_until(asyncio.Event())
