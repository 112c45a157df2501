"""Dropped sockets, draining and unreadable servers, played by a scripted stub on real sockets."""

import asyncio
from http import HTTPStatus

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from tests.integration.stub_gateway import PACKET, Peer, stub_gateway
from tests.support.patience import PATIENCE_S
from tests.support.polling import until
from voicegate.clients.python.backoff import Backoff
from voicegate.clients.python.client import Gate, connect
from voicegate.clients.python.context import Context
from voicegate.clients.python.dialing import LinkOptions, dial
from voicegate.clients.python.errors import (
    ConnectFailed,
    ConnectionLost,
    ContextClosed,
    ContextFailed,
    GateError,
    InvalidInput,
)
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage

pytestmark = pytest.mark.usefixtures("no_hang")

AT_ONCE = Backoff(first_s=0.0, max_s=0.0, num_retries=2)


async def greet_and_speak(peer: Peer) -> None:
    await peer.greet()
    context = await peer.accept()
    await peer.speak(context)
    await peer.socket.wait_closed()


async def drop_after_first_audio(peer: Peer) -> None:
    await peer.greet()
    await peer.accept()
    await peer.send(AudioMessage(0, 0, 0, (PACKET,), is_first=True))
    await peer.receive()
    peer.drop()


async def heard_of(context: Context) -> list[bytes]:
    return [packet async for audio in context for packet in audio.packets]


async def lose_first_context(gate: Gate) -> None:
    context = await gate.open()
    assert (await anext(context)).packets == (PACKET,)
    await context.say("drop now")
    with pytest.raises(ConnectionLost, match="lost"):
        await anext(context)


async def test_a_context_in_flight_is_lost_and_the_next_open_connects_again() -> None:
    async with stub_gateway([drop_after_first_audio, greet_and_speak]) as url, connect(url) as gate:
        await lose_first_context(gate)
        assert await heard_of(await gate.open()) == [PACKET]


async def test_reconnect_off_means_off() -> None:
    async with stub_gateway([drop_after_first_audio]) as url, connect(url, reconnect=False) as gate:
        await lose_first_context(gate)
        with pytest.raises(ConnectionLost, match="reconnect is off"):
            await gate.open()


async def test_a_busy_server_is_tried_again() -> None:
    busy = HTTPStatus.SERVICE_UNAVAILABLE
    async with (
        stub_gateway([drop_after_first_audio, busy, busy, greet_and_speak]) as url,
        connect(url, backoff=AT_ONCE) as gate,
    ):
        await lose_first_context(gate)
        assert await heard_of(await gate.open()) == [PACKET]


async def test_tries_come_to_an_end() -> None:
    busy = HTTPStatus.SERVICE_UNAVAILABLE
    async with stub_gateway([drop_after_first_audio, *[busy] * 3]) as url, connect(url, backoff=AT_ONCE) as gate:
        await lose_first_context(gate)
        with pytest.raises(ConnectFailed, match="503: not now") as caught:
            await gate.open()
        assert (caught.value.status, caught.value.retry_after_ms, caught.value.is_transient) == (503, 0, True)


async def test_a_refusal_for_good_is_not_tried_again() -> None:
    async with (
        stub_gateway([drop_after_first_audio, HTTPStatus.UNAUTHORIZED]) as url,
        connect(url, backoff=AT_ONCE) as gate,
    ):
        await lose_first_context(gate)
        with pytest.raises(ConnectFailed, match="401"):
            await gate.open()


async def test_a_drop_before_opened_is_tried_again_because_nothing_was_said() -> None:
    async def drop_at_open(peer: Peer) -> None:
        await peer.greet()
        await peer.receive()
        peer.drop()

    async with stub_gateway([drop_at_open, greet_and_speak]) as url, connect(url) as gate:
        assert await heard_of(await gate.open()) == [PACKET]


async def test_an_open_that_cannot_be_sent_leaves_nothing_behind() -> None:
    async with stub_gateway([greet_and_speak]) as url, connect(url) as gate:
        with pytest.raises(InvalidInput):
            await gate.open(context_id="mine", instruct="\ud83d")
        assert await heard_of(await gate.open(context_id="mine")) == [PACKET]


async def test_draining_keeps_what_runs_and_takes_new_contexts_elsewhere() -> None:
    async def drain(peer: Peer) -> None:
        await peer.greet()
        context = await peer.accept()
        await peer.send(wire.Draining(1000), wire.Flushed(context, "told", 0))
        assert isinstance(await peer.receive(), wire.End)
        await peer.speak(context)
        await peer.socket.close(1001)

    async with stub_gateway([drain, greet_and_speak]) as url, connect(url) as gate:
        old = await gate.open()
        await old.wait_flushed("told")
        assert await heard_of(await gate.open()) == [PACKET]
        await old.end()
        assert await heard_of(old) == [PACKET]


async def test_an_open_that_crossed_draining_goes_elsewhere() -> None:
    async def refuse_and_drain(peer: Peer) -> None:
        await peer.greet()
        message = await peer.receive()
        assert isinstance(message, wire.Open)
        refused = wire.Error("overloaded", "going away", fatal=True, context=message.context, retry_after_ms=1000)
        await peer.send(wire.Draining(1000), refused)
        await peer.socket.wait_closed()

    async with stub_gateway([refuse_and_drain, greet_and_speak]) as url, connect(url) as gate:
        assert await heard_of(await gate.open()) == [PACKET]


async def test_overloaded_without_draining_is_the_callers_to_decide() -> None:
    async def refuse(peer: Peer) -> None:
        await peer.greet()
        message = await peer.receive()
        assert isinstance(message, wire.Open)
        await peer.send(wire.Error("overloaded", "full", fatal=True, context=message.context, retry_after_ms=5))
        await peer.socket.wait_closed()

    async with stub_gateway([refuse]) as url, connect(url) as gate:
        with pytest.raises(ContextFailed, match="overloaded"):
            await gate.open()


async def test_a_server_that_cannot_be_read_is_left() -> None:
    async def babble(peer: Peer) -> None:
        await peer.greet()
        await peer.accept()
        await peer.receive()
        await peer.socket.send('{"type": "done"}')
        await peer.socket.wait_closed()
        assert peer.socket.close_code == 1007

    async with stub_gateway([babble]) as url, connect(url) as gate:
        context = await gate.open()
        await context.say("surprise me")
        with pytest.raises(ConnectionLost, match="cannot read: done: "):
            await anext(context)


async def test_the_reason_of_a_loss_is_told() -> None:
    async def complain(peer: Peer) -> None:
        await peer.greet()
        await peer.accept()
        await peer.send(wire.Error("slow_consumer", "you read nothing", fatal=True))
        await peer.socket.close(1008, "slow_consumer")

    async with stub_gateway([complain]) as url, connect(url) as gate:
        context = await gate.open()
        with pytest.raises(ConnectionLost, match="1008; slow_consumer; slow_consumer: you read nothing"):
            await anext(context)


async def test_late_audio_of_a_cancelled_context_is_dropped_even_where_its_handle_is_used_again() -> None:
    async def reuse_handle(peer: Peer) -> None:
        await peer.greet()
        first = await peer.accept()
        assert isinstance(await peer.receive(), wire.Cancel)
        await peer.send(AudioMessage(0, 0, 0, (b"\xf8stale",), is_first=True))
        await peer.send(wire.Cancelled(first, 0, "", ""))
        await peer.send(AudioMessage(0, 1, 960, (b"\xf8stale",)))
        await peer.speak(await peer.accept())
        await peer.socket.wait_closed()

    async with stub_gateway([reuse_handle]) as url, connect(url) as gate:
        await (await gate.open()).cancel()
        assert await heard_of(await gate.open()) == [PACKET]


async def test_an_open_that_is_given_up_is_cancelled_at_the_server() -> None:
    cancelled = asyncio.Event()
    arrived = asyncio.Event()

    async def slow(peer: Peer) -> None:
        await peer.greet()
        assert isinstance(await peer.receive(), wire.Open)
        arrived.set()
        assert isinstance(await peer.receive(), wire.Cancel)
        cancelled.set()

    async with stub_gateway([slow]) as url, connect(url) as gate:
        opening = asyncio.create_task(gate.open())
        await arrived.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await cancelled.wait()


async def test_a_server_that_says_nothing_times_out() -> None:
    async def mute(peer: Peer) -> None:
        await peer.socket.wait_closed()

    async with stub_gateway([mute]) as url:
        with pytest.raises(ConnectFailed, match=r"no answer within 1 s") as caught:
            async with connect(url, link_options=LinkOptions(connect_timeout_s=1.0)):
                pass
    assert caught.value.is_transient


async def test_a_server_of_another_kind_is_refused() -> None:
    async def echo(peer: Peer) -> None:
        await peer.socket.send("hello")
        await peer.socket.wait_closed()

    async def hang_up(peer: Peer) -> None:
        await peer.socket.close(1013)

    for script, is_transient in ((echo, False), (hang_up, True)):
        async with stub_gateway([script]) as url:
            with pytest.raises(ConnectFailed) as caught:
                async with connect(url):
                    pass
        assert caught.value.is_transient == is_transient


async def test_opens_at_once_share_one_new_connection() -> None:
    async def speak_three(peer: Peer) -> None:
        await peer.greet()
        for handle in range(3):
            await peer.speak(await peer.accept(handle), handle)
        await peer.socket.wait_closed()

    async with stub_gateway([drop_after_first_audio, speak_three]) as url, connect(url) as gate:
        await lose_first_context(gate)
        contexts = await asyncio.gather(*(gate.open() for _ in range(3)))
        assert [await heard_of(context) for context in contexts] == [[PACKET]] * 3


async def test_headers_reach_the_server() -> None:
    async def check(peer: Peer) -> None:
        assert peer.socket.request is not None
        assert peer.socket.request.headers["Authorization"] == "Bearer k"
        await peer.greet()
        await peer.socket.wait_closed()

    options = LinkOptions(headers={"Authorization": "Bearer k"})
    async with stub_gateway([check]) as url, connect(url, link_options=options):
        pass


async def test_messages_of_a_newer_server_are_ignored() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.socket.send('{"type": "weather", "sky": "blue"}')
        context = await peer.accept()
        await peer.socket.send('{"type": "weather", "context": "c0"}')
        await peer.speak(context)

    async with stub_gateway([script]) as url, connect(url, reconnect=False) as gate:
        context = await gate.open()
        assert [audio.packets async for audio in context if audio.packets] == [(PACKET,)]


@pytest.mark.parametrize("retry_after", ["9" * 5000, "Fri, 27 Nov 2026 08:00:00 GMT", "²"])
async def test_a_wait_that_is_no_number_of_seconds_is_none(retry_after: str) -> None:
    def pages(request: Request) -> Response:
        return Response(503, "busy", Headers({"Retry-After": retry_after, "Content-Length": "0"}))

    async with stub_gateway([], pages) as url:
        with pytest.raises(ConnectFailed) as caught:
            await dial(url, LinkOptions())
    assert caught.value.retry_after_ms is None


async def test_a_gateway_that_asks_for_a_day_is_given_up_at_once() -> None:
    def pages(request: Request) -> Response:
        return Response(503, "busy", Headers({"Retry-After": "86400", "Content-Length": "0"}))

    async with stub_gateway([], pages) as url:
        with pytest.raises(ConnectFailed, match="503"):
            async with connect(url):
                raise AssertionError("it has no room")


async def test_those_who_wait_for_a_connection_wait_for_the_same() -> None:
    busy = HTTPStatus.SERVICE_UNAVAILABLE
    backoff = Backoff(first_s=0.2, max_s=0.2, num_retries=2)
    async with stub_gateway([drop_after_first_audio, *[busy] * 3]) as url, connect(url, backoff=backoff) as gate:
        await lose_first_context(gate)
        openings = await asyncio.gather(*(gate.open() for _ in range(20)), return_exceptions=True)
    assert [type(opening) for opening in openings] == [ConnectFailed] * 20, "and no more was asked of the server"


async def test_closing_ends_the_wait_for_a_connection() -> None:
    busy = HTTPStatus.SERVICE_UNAVAILABLE
    is_waiting = asyncio.Event()

    class Never(Backoff):
        def delay_s(self, *_: object) -> float:
            is_waiting.set()
            return 1000.0

    async with stub_gateway([drop_after_first_audio, busy]) as url, connect(url, backoff=Never()) as gate:
        await lose_first_context(gate)
        openings = [asyncio.create_task(gate.open()) for _ in range(3)]
        await is_waiting.wait()
        openings[0].cancel()
        await gate.close()
        outcomes = await asyncio.gather(*openings, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError, ContextClosed, ContextClosed]


async def test_who_leaves_speaking_waits_for_nobody() -> None:
    """Neither for a server that does not answer a cancel, nor for a network that takes nothing."""

    async def answer_no_cancel(peer: Peer) -> None:
        await peer.greet()
        await peer.accept()
        await peer.send(AudioMessage(0, 0, 0, (PACKET,), is_first=True))
        await peer.socket.wait_closed()

    async def listen(gate: Gate) -> None:
        async for _ in gate.speak("many words"):
            pass

    async with stub_gateway([answer_no_cancel]) as url, connect(url) as gate:
        started_s = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(listen(gate), 0.2)
        assert asyncio.get_running_loop().time() - started_s < PATIENCE_S / 2


async def test_closing_waits_no_longer_than_it_may_for_a_peer_that_takes_nothing() -> None:
    is_judged = asyncio.Event()

    async def read_nothing(peer: Peer) -> None:
        await peer.greet()
        await peer.accept()
        peer.socket.transport.pause_reading()
        await is_judged.wait()
        peer.socket.transport.abort()  # it would wait 10 s for the answer that it does not read

    options = LinkOptions(close_timeout_s=0.3, ping_s=600.0)
    async with stub_gateway([read_nothing]) as url:
        gate = connect(url, link_options=options)
        await gate.__aenter__()
        context = await gate.open()
        saying = asyncio.create_task(context.say("many words " * 5_000_000))
        await asyncio.sleep(0.5)
        started_s = asyncio.get_running_loop().time()
        await asyncio.gather(gate.close(), gate.close())
        assert asyncio.get_running_loop().time() - started_s < PATIENCE_S / 2
        with pytest.raises(GateError):
            await saying
        is_judged.set()


async def test_players_may_report_when_the_gateway_has_gone() -> None:
    async def speak_and_go(peer: Peer) -> None:
        await peer.greet()
        await peer.speak(await peer.accept())
        await peer.socket.close(1001)

    async with stub_gateway([speak_and_go]) as url, connect(url) as gate:
        context = await gate.open()
        assert await heard_of(context) == [PACKET]
        await until(lambda: not gate.is_connected)
        await context.report_playback(20)
        assert (await context.cancel(20)).audio_ms == 20


@pytest.mark.parametrize("script", [HTTPStatus.UNAUTHORIZED, HTTPStatus.SERVICE_UNAVAILABLE, None])
async def test_no_failure_tells_what_may_be_a_key(script: HTTPStatus | None) -> None:
    async with stub_gateway([] if script is None else [script]) as url:
        address = url.replace("ws://", "ws://me:SECRET@") + "/v1/stream?access_token=SECRET"
        with pytest.raises(GateError) as caught:
            await connect(address + ("#meaningless" if script is None else "")).__aenter__()
    assert f"{url}/v1/stream" in str(caught.value)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("host", [".example", "a" * 64 + ".example"])
async def test_a_host_that_cannot_be_is_told_as_such(host: str) -> None:
    with pytest.raises(InvalidInput, match="no name that there can be"):
        await connect(f"ws://{host}").__aenter__()
