"""Start, readiness, pages, drain, failure, exit: the server around the sockets."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from structlog.testing import capture_logs
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin

from tests.integration.raw_client import exchange, get
from tests.integration.wire_client import closed_with, connect_to, running, serving
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.engine.interface import Overloaded, Unsupported
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.http.pages import PAGES
from voicegate.gateway.server.run import run_gateway, running_gateway
from voicegate.gateway.server.server import EXIT_FAILED, EXIT_OK
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage


class SlowStart(FakeEngine):
    def __init__(self) -> None:
        super().__init__()
        self.may_start = asyncio.Event()

    async def start(self) -> None:
        await self.may_start.wait()
        await super().start()


class BrokenStart(FakeEngine):
    async def start(self) -> None:
        raise Unsupported("no model there; run `voicegate models`")


async def refused_upgrade(url: str) -> Any:
    with pytest.raises(InvalidStatus) as caught:
        await connect(url)
    return caught.value.response


# --- pages and readiness ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_text", "expected"),
    [
        ("POST /v1/stream HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 405),
        ("POST /v1/stream HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 405),
        ("DELETE /v1/voices HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        ("GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 400),
        ("GET /healthz HTTP/3\r\nHost: x\r\n\r\n", 400),
        (f"GET /v1/stream?session={'x' * 9000} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\r\n", 400),
        ("\x16\x03\x01\x02\r\n\r\n", 400),  # TLS
        ("GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + "x" * 20_000 + "\r\n\r\n", 431),
    ],
)
async def test_what_is_no_request_of_ours_is_answered(request_text: str, expected: int) -> None:
    async with serving() as served:
        status, headers, body = await exchange(served.url, request_text)
        assert (status, headers["Connection"]) == (expected, "close")
        assert body.endswith("\n")
        assert (await get(served.url, "/healthz"))[0] == 200


async def test_a_page_of_another_site_is_refused() -> None:
    async with serving(allowed_origins="https://app.example") as served:
        for origin in ("https://evil.example", "null"):
            with pytest.raises(InvalidStatus) as caught:
                await connect(served.url, origin=Origin(origin))
            assert caught.value.response.status_code == 403
        rebound = {"Host": "evil.example:8080"}
        with pytest.raises(InvalidStatus) as caught:
            await connect(served.url, origin=Origin("http://evil.example:8080"), additional_headers=rebound)
        assert caught.value.response.status_code == 403
        for origin in ("https://app.example", served.url.replace("ws", "http").removesuffix("/v1/stream")):
            async with served.client(origin=Origin(origin)) as client:
                await client.speak("a", "x")
                await client.until_done("a")
        request = "GET /v1/voices HTTP/1.1\r\nHost: localhost\r\nOrigin: https://app.example\r\n\r\n"
        _, headers, _ = await exchange(served.url, request)
        assert headers["Access-Control-Allow-Origin"] == "https://app.example"


async def test_a_fault_at_a_handshake_is_answered_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as served:
        with monkeypatch.context() as broken, capture_logs() as lines:
            broken.setattr("voicegate.gateway.server.websocket.upgrades.find_refusal", lambda *_: 1 / 0)
            with pytest.raises(InvalidStatus) as caught:
                await connect(served.url)
        assert caught.value.response.status_code == 500
        assert "a handshake failed" in [line["event"] for line in lines]
        async with served.client() as client:
            await client.speak("a", "x")
            await client.until_done("a")


async def test_a_rebound_page_reads_nothing() -> None:
    """A browser sends no Origin with what it takes for the page's own site's, so the name that was asked for counts."""
    for settings in ({}, {"allowed_hosts": "gate.example"}):
        async with serving(**settings) as served:
            for path in (*PAGES, "/v1/voices/hum", "/v1/audio/models", "/player/player.js", "/nothing"):
                for method in ("GET", "HEAD"):
                    request = f"{method} {path} HTTP/1.1\r\nHost: evil.example:8080\r\n\r\n"
                    status, headers, body = await exchange(served.url, request)
                    if path in ("/healthz", "/readyz"):  # balancers ask by any name, and these tell nothing
                        assert status == 200
                        continue
                    assert (status, "Access-Control-Allow-Origin" in headers) == (403, False)
                    assert method == "HEAD" or "--allowed-hosts" in body
            for name in ("localhost:8080", "127.0.0.1", "[::1]:8080", "LocalHost"):
                assert (await exchange(served.url, f"GET /v1/voices HTTP/1.1\r\nHost: {name}\r\n\r\n"))[0] == 200
            assert (await exchange(served.url, "GET /v1/voices HTTP/1.0\r\n\r\n"))[0] == 200, "no browser"
    for settings in ({"allowed_origins": "*"}, {"allowed_hosts": "evil.example"}):
        async with serving(**settings) as served:
            request = "GET /v1/voices HTTP/1.1\r\nHost: evil.example:8080\r\n\r\n"
            assert (await exchange(served.url, request))[0] == 200


async def test_it_answers_while_the_engine_warms_up() -> None:
    engine = SlowStart()
    async with running(engine, waits_for_engine=False) as served:
        url = served.gateway.url
        assert (await get(url, "/healthz"))[0] == 200
        status, headers, body = await get(url, "/readyz")
        assert (status, body) == (503, "warming up\n")
        response = await refused_upgrade(url)
        assert (response.status_code, response.headers["Retry-After"]) == (503, headers["Retry-After"])
        engine.may_start.set()
        await served.gateway.settled.wait()
        assert (await get(url, "/readyz"))[0] == 200
        async with connect_to(url) as client:
            await client.speak("a", "ready")
            await client.until_done("a")


async def test_an_engine_in_trouble_is_not_ready_until_it_is_over() -> None:
    async with serving(waiting_s=0.0) as served, served.client() as client:
        served.engine.trouble = "no encoder is alive"
        status, _, body = await get(served.url, "/readyz")
        assert (status, body) == (503, "no encoder is alive\n")
        assert (await get(served.url, "/healthz"))[0] == 200
        assert (await get(served.url, "/v1/voices"))[0] == 200
        assert (await refused_upgrade(served.url)).status_code == 503
        await client.send(wire.Open(context="a"), wire.Text("a", "no room"))
        error = await client.until(wire.Error)
        assert (error.code, error.context) == ("overloaded", "a")
        served.engine.trouble = None
        assert (await get(served.url, "/readyz"))[0] == 200
        await client.speak("b", "x")
        await client.until_done("b")


async def test_a_stop_during_warm_up_is_heard() -> None:
    async with running(SlowStart(), waits_for_engine=False) as served:
        served.stop.set()
        assert await served.exit_status == EXIT_OK


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_small_packets_are_not_held_back(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def nodelay_of_both_ends() -> None:
        engine = FakeEngine()
        async with running(engine) as served, connect_to(served.gateway.url):
            (connection,) = served.gateway.guests
            raw = connection._websocket.transport.get_extra_info("socket")
            assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(nodelay_of_both_ends())


# --- drain ------------------------------------------------------------------------------------------------


async def test_a_drain_lets_contexts_finish_and_refuses_new_ones() -> None:
    async with running(FakeEngine(), drain_s=60.0) as served:
        url = served.gateway.url
        async with connect_to(url) as client, connect_to(url) as idle:
            await client.send(wire.Open(context="a"), wire.Text("a", "first "))
            await client.until(wire.Alignment)
            served.stop.set()
            assert (await client.until(wire.Draining)).deadline_ms == 57_500
            assert await closed_with(idle) == 1001
            status, _, body = await get(url, "/readyz")
            assert status == 503
            assert "draining" in body
            assert (await get(url, "/healthz"))[0] == 200
            assert (await refused_upgrade(url)).status_code == 503
            await client.send(wire.Open(context="b"))
            error = await client.until(wire.Error)
            assert (error.code, error.context, error.fatal) == ("overloaded", "b", True)
            assert isinstance(error.retry_after_ms, int)
            await client.send(wire.Text("a", "last"), wire.End("a"))
            assert (await client.until(wire.Done)).audio_ms == 9 * 60
            assert await closed_with(client) == 1001
            assert await served.exit_status == EXIT_OK


async def test_a_drain_ends_what_does_not_finish() -> None:
    engine = FakeEngine(Script(faults={0: Fault(FaultKind.STALL)}))
    async with running(engine, drain_s=2.6) as served, connect_to(served.gateway.url) as client:
        await client.speak("a", "never said")
        await client.until(wire.Opened)
        served.stop.set()
        error = await client.until(wire.Error)
        assert (error.code, error.context, error.fatal) == ("overloaded", "a", True)
        assert await closed_with(client) == 1001
        assert await served.exit_status == EXIT_OK
        assert engine.num_live == 0


async def test_an_embedded_gateway_ends_without_waiting() -> None:
    engine = FakeEngine(Script(faults={0: Fault(FaultKind.STALL)}))
    async with contextlib.AsyncExitStack() as stack:
        async with running_gateway(GatewayConfig(), engine) as url:
            client = await stack.enter_async_context(connect_to(url))
            await client.speak("a", "never said")
            await client.until(wire.Opened)
        # The gateway went first.
        assert (await client.until(wire.Error)).context == "a"
        assert await closed_with(client) == 1001
    assert engine.num_live == 0


# --- failure ----------------------------------------------------------------------------------------------


async def test_a_failed_utterance_leaves_the_others() -> None:
    script = Script(
        faults={1: Fault(FaultKind.FAIL, after_ms=120)},
        refusals={2: Overloaded("full", retry_after_ms=300), 3: Unsupported("no instruct")},
    )
    async with serving(script, waiting_s=0.0) as served, served.client() as client:
        for context in ("fine", "fails"):
            await client.send(wire.Open(context=context), wire.Text(context, "some text "))
        error = await client.until(wire.Error)
        assert (error.code, error.context, error.fatal) == ("engine_failed", "fails", True)
        for context in ("full", "unable"):
            await client.send(wire.Open(context=context), wire.Text(context, "some text "))
        refusals = [await client.until(wire.Error) for _ in range(2)]
        assert [(e.code, e.context, e.fatal) for e in refusals] == [
            ("overloaded", "full", True),
            ("unsupported", "unable", True),
        ]
        assert refusals[0].retry_after_ms == 300
        await client.send(wire.End("fine"))
        assert (await client.until(wire.Done)).audio_ms == 8 * 60


async def test_the_engines_death_is_told_and_ends_the_process() -> None:
    engine = FakeEngine(Script(faults={0: Fault(FaultKind.DIE, after_ms=120)}))
    async with running(engine) as served:
        async with connect_to(served.gateway.url) as client, connect_to(served.gateway.url) as idle:
            await client.send(wire.Open(context="a"), wire.Open(context="b"), wire.Text("b", "the end "))
            errors = [await client.until(wire.Error) for _ in range(2)]
            assert {(e.code, e.context, e.fatal) for e in errors} == {
                ("engine_failed", "a", True),
                ("engine_failed", "b", True),
            }
            for each in (client, idle):
                assert await closed_with(each) == 1011
                assert each.websocket.close_reason == ""
        assert await served.exit_status == EXIT_FAILED


async def test_an_engine_that_dies_while_the_server_drains_is_told_at_once() -> None:
    engine = FakeEngine(Script(faults={0: Fault(FaultKind.DIE, after_ms=120)}))
    async with running(engine, drain_s=600.0) as served:
        async with connect_to(served.gateway.url) as client:
            await client.send(wire.Open(context="a"), wire.Text("a", "the end "))
            await client.until(AudioMessage)
            served.stop.set()
            assert (await client.until(wire.Error)).code == "engine_failed"
        assert await served.exit_status == EXIT_FAILED


async def test_an_engine_that_does_not_start_is_an_error_with_its_remedy() -> None:
    with pytest.raises(GatewayError, match="run `voicegate models`"):
        async with running_gateway(GatewayConfig(), BrokenStart()):
            pytest.fail("it should not come to this")
    async with running(BrokenStart()) as served:
        assert await served.exit_status == EXIT_FAILED


def test_a_taken_port_is_named_without_a_traceback() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with capture_logs() as lines:
            assert run_gateway(GatewayConfig(port=port), FakeEngine()) == EXIT_FAILED
    (line,) = [line for line in lines if line["log_level"] == "error"]
    assert f"127.0.0.1:{port}: the port is taken" in line["reason"]
    assert "exc_info" not in line
