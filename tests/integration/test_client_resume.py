"""The Python client and dropped sockets where the server resumes: it comes back by itself, or says why it cannot."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus

import msgspec
import pytest

from tests.integration.chaos_proxy import ChaosProxy
from tests.integration.stub_gateway import LIMITS, PACKET, Peer, Script, stub_gateway
from tests.integration.wire_client import serving
from voicegate.clients.python.backoff import Backoff
from voicegate.clients.python.client import Gate, connect
from voicegate.clients.python.context import Context
from voicegate.clients.python.dialing import LinkOptions
from voicegate.clients.python.errors import ConnectionLost
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.messages import STREAM_PATH, ClientMessage

pytestmark = pytest.mark.usefixtures("no_hang")

AT_ONCE = Backoff(first_s=0.0, max_s=0.0, num_retries=2)
RESUMABLE = msgspec.structs.replace(LIMITS, resume_seconds=60)


async def greet(peer: Peer, limits: wire.Limits = RESUMABLE) -> None:
    await peer.send(wire.Ready("s", "t", "stub", ("hum",), "hum", ("clause",), limits))


async def begin(peer: Peer, limits: wire.Limits = RESUMABLE) -> None:
    await greet(peer, limits)
    assert await peer.receive() == wire.Ack(0)
    await peer.accept()
    await peer.send(AudioMessage(0, 0, 0, (PACKET,), is_first=True))


async def begin_and_drop(peer: Peer, limits: wire.Limits = RESUMABLE) -> None:
    await begin(peer, limits)
    assert await peer.receive() == wire.Text("c0", "drop now")
    peer.drop()


async def asked(peer: Peer) -> ClientMessage:
    await greet(peer)
    return await peer.receive()


async def finish(peer: Peer) -> None:
    await peer.send(AudioMessage(0, 1, 960, (), is_last=True), wire.Done("c0", 20, 1, wire.Timing()))
    await peer.socket.wait_closed()


async def until_dropped(gate: Gate) -> None:
    while gate.is_connected:  # noqa: ASYNC110 - it tells nobody, on purpose
        await asyncio.sleep(0)


async def packets_of(context: Context) -> list[bytes]:
    return [packet async for audio in context for packet in audio.packets]


async def test_what_the_server_did_not_get_is_sent_again_in_order() -> None:
    async def resume(peer: Peer) -> None:
        assert peer.socket.request is not None
        assert peer.socket.request.path == f"{STREAM_PATH}?session=s", "for balancers"
        assert await asked(peer) == wire.Resume("s", "t", received=2)
        await peer.send(wire.Draining(1), wire.Resumed("s", received=1))
        assert [await peer.receive() for _ in range(3)] == [
            wire.Text("c0", "drop now"),
            wire.Text("c0", "later"),
            wire.End("c0"),
        ]
        await finish(peer)

    async with stub_gateway([begin_and_drop, resume]) as url, connect(url, backoff=AT_ONCE) as gate:
        context = await gate.open()
        await context.say("drop now")
        assert (await anext(context)).packets == (PACKET,)
        await context.say("later")
        await context.report_playback(5)
        await context.end()
        assert await packets_of(context) == []
        assert isinstance(context.result, wire.Done)
        assert gate.num_resumed == 1


async def test_servers_that_are_busy_or_hang_up_are_tried_again() -> None:
    async def hang_up(peer: Peer) -> None:
        peer.drop()

    async def hang_up_when_asked(peer: Peer) -> None:
        await asked(peer)
        peer.drop()

    async def resume(peer: Peer) -> None:
        assert await asked(peer) == wire.Resume("s", "t", received=2)
        await peer.send(wire.Resumed("s", received=2))
        await finish(peer)

    scripts: list[Script | HTTPStatus] = [
        begin_and_drop,
        HTTPStatus.SERVICE_UNAVAILABLE,
        hang_up,
        hang_up_when_asked,
        resume,
    ]
    async with stub_gateway(scripts) as url, connect(url, backoff=AT_ONCE) as gate:
        context = await gate.open()
        await context.say("drop now")
        assert await packets_of(context) == [PACKET]


async def test_a_server_that_does_not_answer_is_tried_again() -> None:
    async def hear_and_say_nothing(peer: Peer) -> None:
        await asked(peer)
        await peer.socket.wait_closed()

    async def resume(peer: Peer) -> None:
        await asked(peer)
        await peer.send(wire.Resumed("s", received=2))
        await finish(peer)

    scripts = [begin_and_drop, hear_and_say_nothing, resume]
    options = LinkOptions(connect_timeout_s=4.0)  # in which a busy machine connects, too
    async with stub_gateway(scripts) as url, connect(url, backoff=AT_ONCE, link_options=options) as gate:
        context = await gate.open()
        await context.say("drop now")
        assert await packets_of(context) == [PACKET]


async def refuse(peer: Peer) -> None:
    await asked(peer)
    await peer.send(wire.Error("cannot_resume", "too late", fatal=False))
    await peer.socket.wait_closed()


async def lie(peer: Peer) -> None:
    await asked(peer)
    await peer.send(wire.Resumed("s", received=17))
    await peer.socket.wait_closed()


async def babble(peer: Peer) -> None:
    await asked(peer)
    await peer.socket.send("what?")
    await peer.socket.wait_closed()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (refuse, "cannot_resume: too late"),
        (babble, "cannot be read: not JSON"),
        (lie, "the server has 17 messages of 2"),
        (HTTPStatus.UNAUTHORIZED, "answered HTTP 401"),
    ],
)
async def test_a_session_that_cannot_be_resumed_is_lost_with_the_reason(
    script: Script | HTTPStatus, reason: str
) -> None:
    scripts: list[Script | HTTPStatus] = [begin_and_drop, script]
    async with stub_gateway(scripts) as url, connect(url, backoff=AT_ONCE) as gate:
        context = await gate.open()
        await context.say("drop now")
        with pytest.raises(ConnectionLost, match=reason):
            await packets_of(context)
        assert gate.num_resumed == 0


async def test_time_runs_out() -> None:
    soon_over = partial(begin_and_drop, limits=msgspec.structs.replace(LIMITS, resume_seconds=1))
    async with stub_gateway([soon_over]) as url, connect(url, backoff=Backoff(first_s=60, max_s=60)) as gate:
        context = await gate.open()
        await context.say("drop now")
        with pytest.raises(ConnectionLost):
            await packets_of(context)


@pytest.mark.parametrize(("code", "reason"), [(1000, ""), (1001, "drained"), (1008, "taken_over"), (1002, "")])
async def test_who_is_told_to_go_does_not_come_back(code: int, reason: str) -> None:
    async def dismiss(peer: Peer) -> None:
        await begin(peer)
        await peer.socket.close(code, reason)

    async with stub_gateway([dismiss]) as url, connect(url, backoff=AT_ONCE) as gate:
        context = await gate.open()
        with pytest.raises(ConnectionLost, match=reason or "1000|1002"):
            await packets_of(context)


async def test_a_gate_that_does_not_reconnect_does_not_resume() -> None:
    async def begin_without_ack(peer: Peer) -> None:
        await greet(peer)
        await peer.accept()
        peer.drop()

    async with stub_gateway([begin_without_ack]) as url, connect(url, reconnect=False) as gate:
        context = await gate.open()
        with pytest.raises(ConnectionLost):
            await packets_of(context)


async def test_nothing_is_resumed_for_nobody() -> None:
    async def drop(peer: Peer) -> None:
        await greet(peer)
        await peer.receive()
        peer.drop()

    async def greet_again(peer: Peer) -> None:
        assert await asked(peer) == wire.Ack(0), "a new session"
        await peer.speak(await peer.accept())
        await peer.socket.wait_closed()

    async with stub_gateway([drop, greet_again]) as url, connect(url, backoff=AT_ONCE) as gate:
        await until_dropped(gate)
        assert await packets_of(await gate.open()) == [PACKET]


async def test_a_gate_closes_while_it_comes_back() -> None:
    async with stub_gateway([begin_and_drop]) as url:
        async with connect(url, backoff=Backoff(first_s=60, max_s=60)) as gate:
            context = await gate.open()
            await context.say("drop now")
            waiting = asyncio.create_task(packets_of(context))
            await until_dropped(gate)
        with pytest.raises(ConnectionLost):
            await waiting


async def test_a_writer_waits_where_too_much_is_unacknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.clients.python.line._MAX_UNACKNOWLEDGED_BYTES", 5000)

    async def resume(peer: Peer) -> None:
        await asked(peer)
        await peer.send(wire.Resumed("s", received=1))
        num_texts = 0
        while isinstance(await peer.receive(), wire.Text):
            num_texts += 1
            await peer.send(wire.Ack(1 + num_texts))
        assert num_texts == 101
        await finish(peer)

    async with stub_gateway([begin_and_drop, resume]) as url, connect(url, backoff=AT_ONCE) as gate:
        context = await gate.open()
        await context.say("drop now")
        for _ in range(100):
            await context.say("x" * 500)
        await context.end()
        assert await packets_of(context) == [PACKET]


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Gate, ChaosProxy]]:
    async with serving() as served:
        proxy = ChaosProxy(served.url, seed=0)
        async with proxy.running(), connect(proxy.url, backoff=AT_ONCE) as gate:
            yield gate, proxy


async def test_an_open_waits_for_the_connection_to_come_back() -> None:
    async with connected() as (gate, proxy):
        first = await gate.open()
        await proxy.cut()
        second = await gate.open()
        assert second.opened.handle == 1, "of the same session"
        for context in (first, second):
            await context.say("Hello.")
            await context.end()
            assert await packets_of(context)
        assert gate.num_resumed == 1


async def test_a_cancel_while_it_comes_back_is_answered() -> None:
    async with connected() as (gate, proxy):
        context = await gate.open()
        await context.say("Hello there")
        await proxy.cut()
        cancelled = await context.cancel()
        assert cancelled.spoken_text + cancelled.remaining_text == "Hello there"


async def test_what_is_sent_into_a_connection_that_is_gone_is_not_lost() -> None:
    async with connected() as (gate, proxy):
        context = await gate.open()
        for piece in ("Hello ", "there, ", "whoever ", "you ", "are"):
            await proxy.cut()
            await context.say(piece)
        await context.end()
        assert await packets_of(context)
        assert [item.text for item in context.alignments] == ["Hello", "there,", "whoever", "you", "are"]
