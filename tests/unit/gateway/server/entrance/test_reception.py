"""A connection's owner, from its first bytes; however they are cut, the successor gets them all."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.gateway.server.websocket.test_bounded_socket import StubTransport, turns
from voicegate.gateway.server.entrance.reception import MAX_HEAD_BYTES, Asked, Reception

UPGRADE = b"GET /v1/stream HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n\x81\x80"
POST = b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"


class Heir(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data


class Desk:
    """A reception, and what becomes of a connection there."""

    def __init__(self) -> None:
        self.transport = HandedOver()
        self.asked: list[Asked | None] = []
        self.departed: list[asyncio.Transport] = []
        self.reception = Reception(
            successor=self._successor, on_arrival=lambda _: None, on_departure=self.departed.append
        )
        self.reception.connection_made(self.transport)

    def _successor(self, _transport: asyncio.Transport, asked: Asked | None) -> asyncio.Protocol:
        self.asked.append(asked)
        return Heir()

    def receive(self, data: bytes) -> None:
        (self.transport.protocol or self.reception).data_received(data)

    @property
    def received(self) -> bytes | None:
        return None if self.transport.protocol is None else self.transport.protocol.received


class HandedOver(StubTransport):
    protocol: Heir | None = None

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, Heir)
        self.protocol = protocol


@given(data=st.sampled_from([UPGRADE, POST]), cuts=st.lists(st.integers(0, len(UPGRADE)), max_size=5))
def test_any_cut_of_the_bytes(data: bytes, cuts: list[int]) -> None:
    async def run() -> None:
        desk = Desk()
        edges = [0, *sorted(cuts), len(data)]
        for part in (data[start:stop] for start, stop in pairwise(edges) if start < stop):
            desk.receive(part)
        assert desk.received == data
        (asked,) = desk.asked
        if data is POST:
            assert asked is None  # a handshake has no body
        else:
            assert asked is not None
            assert asked.request.path == "/v1/stream"
            assert b"\x81\x80".startswith(asked.rest)

    asyncio.run(run())


@pytest.mark.parametrize("beginning", [b"\x16\x03\x01\x02", b"1", b"!", b"\xc3", b"\r\n", b"1GET / HTTP/1.1\r\n"])
async def test_what_begins_no_request_is_refused_at_once(beginning: bytes) -> None:
    desk = Desk()
    desk.receive(beginning)
    assert desk.received is None
    assert desk.transport.written[0].startswith(b"HTTP/1.1 400 ")
    assert desk.transport.is_closing()


async def test_bare_line_feeds_end_a_head_too() -> None:
    desk = Desk()
    desk.receive(b"GET / HTTP/1.1\nHost: x\n\n")
    assert desk.received is not None


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("http://gate.example:8080/v1/stream?a=b", "/v1/stream?a=b"),
        ("HTTPS://[::1]/v1/stream", "/v1/stream"),
        ("http://gate.example", "/"),
        ("http://gate.example?a=b", "/?a=b"),
        ("/http://gate.example/", "/http:/gate.example"),
        ("/v1/models/", "/v1/models"),
        ("//v1//audio/speech//?a=//b/", "/v1/audio/speech?a=//b/"),
        ("http://gate.example/v1/voices/", "/v1/voices"),
        ("//", "/"),
        ("http:///v1/stream", "http:///v1/stream"),
        ("ftp://gate.example/", "ftp://gate.example/"),
        ("*", "*"),
    ],
)
async def test_a_target_becomes_a_path_whose_slashes_are_one_and_not_at_its_end(target: str, path: str) -> None:
    desk = Desk()
    head = "GET {} HTTP/1.1\r\nHost: gate.example:8080\r\nUpgrade: websocket\r\n\r\n"
    desk.receive(head.format(target).encode())
    assert desk.received == head.format(path).encode()
    (asked,) = desk.asked
    assert asked is not None
    assert asked.request.path == path


async def test_a_head_has_its_length() -> None:
    for head in (b"X: " + b"x" * MAX_HEAD_BYTES + b"\r\n", b"X:\r\n" * 129):
        desk = Desk()
        desk.receive(b"GET / HTTP/1.1\r\n" + head + b"\r\n")
        assert desk.received is None
        assert desk.transport.written[0].startswith(b"HTTP/1.1 431 ")
        assert desk.transport.is_closing()
        desk.receive(b"more")
        assert len(desk.transport.written) == 1
    desk = Desk()
    desk.receive(b"GET / HTTP/1.1\r\n" + b"X:\r\n" * 128 + b"\r\n")
    assert desk.received is not None
    long_body = POST + b"x" * 60_000
    desk = Desk()
    desk.receive(long_body)
    assert desk.received == long_body


async def test_who_sends_no_request_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.entrance.reception._HEAD_TIMEOUT_S", 0.0)
    desk = Desk()
    desk.receive(b"GET / HT")
    await turns(3)
    assert desk.transport.is_aborted
    desk.reception.connection_lost(None)
    assert desk.departed == [desk.transport]
