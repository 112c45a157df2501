"""A peer's power over one HTTP connection, seen from the transport."""

import asyncio
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.support.patience import PATIENCE_S
from tests.unit.gateway.server.websocket.test_bounded_socket import StubTransport, turns
from voicegate.gateway.server.http.connection import HttpConnection, HttpServer

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


class Transport(StubTransport):
    """With no addresses."""

    has_ended = False

    def write_eof(self) -> None:
        self.has_ended = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return None if name in ("socket", "sockname", "peername") else super().get_extra_info(name, default)


class App:
    """Reads what comes, and answers when it may."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.may_answer = asyncio.Event()
        self.is_gone = asyncio.Event()

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        message: Message = {"more_body": True}
        while message.get("more_body"):
            message = await receive()
            self.body += message.get("body", b"")
        if message["type"] == "http.disconnect":
            self.is_gone.set()
            return
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": b"done"})


async def refuse(_scope: Scope, _receive: Receive, send: Send) -> None:
    headers = [(b"connection", b"close"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": b"no"})


class Peer:
    def __init__(self, app: ASGIApp | None = None) -> None:
        self.app = App()
        self.transport = Transport()
        self.departures = 0
        server = HttpServer(app or self.app, write_stall_s=0.01)
        self.connection = HttpConnection(server, None, on_departure=self._depart)
        self.connection.connection_made(self.transport)

    def _depart(self) -> None:
        self.departures += 1


async def test_a_body_in_tiny_chunks_is_read_in_turn_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.http.connection._TURN_S", 0.0)  # one piece at a time
    peer = Peer()
    peer.connection.data_received(HEAD)
    peer.connection.data_received(b"1\r\nx\r\n" * 10_000)
    assert not peer.transport.is_reprefill
    await turns(10)
    assert len(peer.app.body) < 10_000
    while not peer.transport.is_reprefill:
        await turns(1)
    peer.connection.data_received(b"0\r\n\r\n")
    peer.app.may_answer.set()
    await turns(10)
    assert peer.app.body == b"x" * 10_000
    assert b"".join(peer.transport.written).startswith(b"HTTP/1.1 200 OK")
    assert peer.transport.is_closing()


async def refused_peer(monkeypatch: pytest.MonkeyPatch) -> Peer:
    """In mid-body, with its answer; nothing of what follows is parsed."""
    peer = Peer(refuse)
    peer.connection.data_received(HEAD)
    peer.connection.data_received(b"1\r\nx\r\n" * 10_000)
    await turns(10)
    monkeypatch.setattr(peer.connection.conn, "receive_data", None)
    assert b"".join(peer.transport.written).endswith(b"\r\n\r\nno")
    assert (peer.transport.has_ended, peer.transport.is_reprefill, peer.transport.is_closing()) == (True, True, False)
    return peer


async def test_a_body_that_nobody_wants_is_thrown_away_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = await refused_peer(monkeypatch)
    peer.connection.data_received(b"1\r\nx\r\n" * 10_000)
    assert (peer.transport.is_reprefill, peer.transport.is_closing()) == (True, False)
    assert not peer.connection.eof_received(), "the transport closes"


async def test_a_body_that_nobody_wants_has_its_size_and_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.http.connection._DISCARDED_BYTES", 100_000)
    peer = await refused_peer(monkeypatch)
    peer.connection.data_received(bytes(100_000))
    assert peer.transport.is_closing()
    monkeypatch.setattr("voicegate.gateway.server.http.connection._DISCARDING_S", 0.01)
    peer = await refused_peer(monkeypatch)
    async with asyncio.timeout(PATIENCE_S):
        while not peer.transport.is_closing():
            await turns(1)


async def test_who_goes_in_mid_body_is_gone() -> None:
    peer = Peer()
    peer.connection.data_received(HEAD + b"1\r\nx\r\n")
    assert not peer.connection.eof_received(), "the transport closes"
    peer.connection.connection_lost(None)
    await peer.app.is_gone.wait()
    assert peer.departures == 1


async def test_who_asked_for_a_page_may_say_no_more() -> None:
    peer = Peer()
    peer.connection.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert peer.connection.eof_received()
    peer.app.may_answer.set()
    await turns(10)
    assert b"".join(peer.transport.written).endswith(b"done\r\n0\r\n\r\n")


async def test_garbage_is_answered_unless_an_answer_has_begun() -> None:
    peer = Peer()
    peer.connection.data_received(b"GET / HTTP/3\r\n\r\n")
    assert b"".join(peer.transport.written).startswith(b"HTTP/1.1 400 ")
    assert peer.transport.is_closing()
    peer = Peer()
    peer.connection.data_received(HEAD + b"no chunk\r\n")
    assert b"".join(peer.transport.written).startswith(b"HTTP/1.1 400 ")
    peer.connection.connection_lost(None)
    await peer.app.is_gone.wait()


async def test_a_peer_that_takes_nothing_is_cut() -> None:
    peer = Peer()
    peer.connection.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    peer.connection.pause_writing()
    async with asyncio.timeout(PATIENCE_S):
        while not peer.transport.is_aborted:
            await turns(1)
    peer.connection.connection_lost(None)
