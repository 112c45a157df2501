"""A peer's power over one socket, seen from the transport."""

import asyncio
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State

from tests.support.patience import PATIENCE_S
from tests.support.virtual_time import run_virtually
from voicegate.gateway.server.entrance.reception import asked_in
from voicegate.gateway.server.websocket.bounded_socket import BoundedSocket, Trouble
from voicegate.gateway.session.inflow import Inflow
from voicegate.gateway.session.stall import StallWatch


class StubRawSocket:
    """Its peer acknowledges `num_acked_bytes`."""

    def __init__(self) -> None:
        self.num_acked_bytes = 0
        self.num_asked = 0

    def setsockopt(self, *_: int) -> None:
        pass

    def getsockopt(self, *_: int) -> bytes:
        self.num_asked += 1
        return bytes(120) + self.num_acked_bytes.to_bytes(8, "little")


class StubTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.raw_socket = StubRawSocket()
        self.written: list[bytes] = []
        self.is_reprefill = True
        self.num_waiting_bytes = 0
        self.is_aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.raw_socket if name == "socket" else default

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.num_waiting_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.is_reprefill = False

    def resume_reading(self) -> None:
        self.is_reprefill = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.is_aborted

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        self.is_aborted = True


class Peer:
    """One end that a test sends as; `transport` is what the other end sees."""

    def __init__(
        self,
        *,
        messages_per_s: float = 1e9,
        stall_s: float = 10.0,
        patience_s: float = 10.0,
        ping_s: float = 3600.0,
        is_heard: bool = True,
        refusal: HTTPStatus | None = None,
    ) -> None:
        self.transport = StubTransport()
        head = (
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        asked = asked_in(head)
        assert asked is not None

        def answer(socket: BoundedSocket, request: Request) -> Response:
            return socket.protocol.accept(request) if refusal is None else socket.protocol.reject(refusal, "no\n")

        self.num_opened = 0
        self.socket = BoundedSocket(
            asked,
            answer=answer,
            on_open=self._note_open,
            on_departure=lambda: None,
            inflow=Inflow(messages_per_s, patience_s=patience_s),
            stall=StallWatch(stall_s),
            ping_s=ping_s,
            max_message_bytes=2**20,
        )
        self.troubles: asyncio.Queue[Trouble] = asyncio.Queue()
        if is_heard:
            self.socket.on_trouble = self.troubles.put_nowait
        self.socket.connection_made(self.transport)
        self.send_raw(head)
        self.answered = b"".join(self.transport.written)
        self.transport.written.clear()

    def _note_open(self, _socket: BoundedSocket) -> None:
        self.num_opened += 1

    def send_raw(self, data: bytes) -> None:
        self.socket.data_received(data)

    def send(self, *frames: Frame) -> None:
        self.send_raw(b"".join(frame.serialize(mask=True) for frame in frames))

    def stop_reading(self) -> None:
        self.transport.num_waiting_bytes = 9000
        self.socket.pause_writing()

    def read_all(self) -> None:
        self.transport.num_waiting_bytes = 0
        self.socket.resume_writing()

    @property
    def pongs(self) -> list[bytes]:
        return [data[2:] for data in self.transport.written if data[0] == 0x80 | Opcode.PONG]


def ping(payload: bytes) -> Frame:
    return Frame(Opcode.PING, payload)


def text(payload: bytes) -> Frame:
    return Frame(Opcode.TEXT, payload)


@pytest.fixture
def new_peer() -> Iterator[Callable[..., Peer]]:
    peers: list[Peer] = []

    def make(**options: Any) -> Peer:
        peers.append(Peer(**options))
        return peers[-1]

    yield make
    for peer in peers:
        peer.socket.connection_lost(None)


NewPeer = Callable[..., Peer]


async def turns(num: int) -> None:
    for _ in range(num):
        await asyncio.sleep(0)  # gives way; nothing is waited for


# --- the handshake ----------------------------------------------------------------------------------------


async def test_a_request_is_answered_where_it_was_read(new_peer: NewPeer) -> None:
    peer = new_peer()
    assert peer.answered.startswith(b"HTTP/1.1 101 ")
    assert peer.socket.state is State.OPEN
    assert peer.num_opened == 1


async def test_who_is_refused_hears_why_and_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.websocket.bounded_socket.CLOSE_TIMEOUT_S", 0.0)
    peer = Peer(refusal=HTTPStatus.FORBIDDEN)
    assert peer.answered.startswith(b"HTTP/1.1 403 ")
    assert peer.answered.endswith(b"\r\n\r\nno\n")
    peer.send(text(b"does it hear me?"))
    async with asyncio.timeout(PATIENCE_S):
        while not peer.transport.is_aborted:
            await turns(1)
    assert peer.num_opened == 0
    peer.socket.connection_lost(None)


# --- writing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 125, 126, 0xFFFF, 0x10000])
@pytest.mark.parametrize("of_size", [lambda size: b"x" * size, lambda size: "ä" * (size // 2)])
async def test_what_is_written_is_what_the_library_sends(
    new_peer: NewPeer, size: int, of_size: Callable[[int], str | bytes]
) -> None:
    peer, other = new_peer(), new_peer()
    await peer.socket.write(of_size(size))
    await other.socket.send(of_size(size))
    assert b"".join(peer.transport.written) == b"".join(other.transport.written)


async def test_a_write_waits_while_the_peer_does_not_read(new_peer: NewPeer) -> None:
    peer = new_peer()
    peer.stop_reading()
    writing = asyncio.create_task(peer.socket.write("late"))
    await turns(3)
    assert not writing.done()
    peer.read_all()
    await writing


async def test_a_write_to_a_closed_socket_says_so() -> None:
    peer = Peer()
    peer.socket.connection_lost(None)
    with pytest.raises(ConnectionClosed):
        await peer.socket.write("late")


async def test_a_connection_that_is_reset_under_a_write_is_closed_like_any_other() -> None:
    peer = Peer()
    peer.transport.write = lambda _data: peer.socket.pause_writing()  # type: ignore[method-assign]
    writing = asyncio.create_task(peer.socket.write("late"))
    await asyncio.sleep(0)
    peer.socket.connection_lost(ConnectionResetError())
    with pytest.raises(ConnectionClosed):
        await writing


# --- messages that are taken where they are read ----------------------------------------------------------


async def test_who_takes_texts_at_once_is_given_whole_ones_and_the_rest_waits_for_recv(new_peer: NewPeer) -> None:
    peer, taken = new_peer(), list[str]()
    peer.socket.on_text = lambda message: not taken.append(message)  # type: ignore[func-returns-value]
    part, rest = Frame(Opcode.TEXT, b"in ", fin=False), Frame(Opcode.CONT, b"parts")
    peer.send(text("schön".encode()), part, rest, text(b"last"))
    assert taken == ["schön"]
    assert [await peer.socket.recv(), await peer.socket.recv()] == ["in parts", "last"], "nothing overtakes"
    peer.send(text(b"again"))
    assert taken == ["schön", "again"]


async def test_what_nobody_takes_at_once_waits_for_recv(new_peer: NewPeer) -> None:
    peer = new_peer()
    peer.send(text(b"1"), Frame(Opcode.BINARY, b"2"))
    assert [await peer.socket.recv(), await peer.socket.recv()] == ["1", b"2"]


async def test_text_that_is_no_utf_8_is_left_to_the_library(new_peer: NewPeer) -> None:
    peer, taken = new_peer(), list[str]()
    peer.socket.on_text = lambda message: not taken.append(message)  # type: ignore[func-returns-value]
    peer.send(text(b"\xff"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.0):
            await peer.socket.recv()
    assert peer.socket.protocol.close_sent is not None
    assert peer.socket.protocol.close_sent.code == 1007
    assert taken == []


# --- pongs ------------------------------------------------------------------------------------------------


async def test_who_reads_gets_every_pong(new_peer: NewPeer) -> None:
    peer = new_peer()
    peer.send(ping(b"1"), ping(b"2"))
    assert peer.pongs == [b"1", b"2"]


async def test_who_does_not_read_gets_one_pong_later(new_peer: NewPeer) -> None:
    peer = new_peer()
    peer.stop_reading()
    peer.send(ping(b"1"), ping(b"2"))
    peer.send(ping(b"3"))
    peer.send(text(b"x"))
    assert peer.transport.written == []
    peer.read_all()
    assert peer.pongs == [b"3"]
    peer.stop_reading()
    peer.read_all()
    assert peer.pongs == [b"3"]


async def test_no_pong_follows_the_close(new_peer: NewPeer) -> None:
    peer = new_peer()
    peer.stop_reading()
    peer.send(ping(b"1"), Frame(Opcode.CLOSE, b"\x03\xe8"))
    assert peer.socket.state is State.CLOSING
    peer.read_all()
    assert peer.pongs == []


# --- pings ------------------------------------------------------------------------------------------------


def test_who_answers_pings_stays_and_who_does_not_is_closed() -> None:
    async def main() -> None:
        lively, silent = Peer(ping_s=20.0), Peer(ping_s=20.0)
        await asyncio.sleep(10.0)  # so as to look between the pings
        for num_pings in range(1, 4):
            await asyncio.sleep(20.0)
            (*_, latest) = [data for data in lively.transport.written if data[0] == 0x80 | Opcode.PING]
            lively.send(Frame(Opcode.PONG, b""), Frame(Opcode.PONG, latest[2:]))
            assert len(lively.transport.written) == num_pings
        assert lively.socket.state is State.OPEN
        sent, closed = silent.transport.written[:2]
        assert (sent[0], closed) == (
            0x80 | Opcode.PING,
            Frame(Opcode.CLOSE, b"\x03\xf3keepalive ping timeout").serialize(mask=False),
        )
        assert silent.transport.is_aborted
        assert silent.socket.was_dropped, "its client may come back"
        for peer in (lively, silent):
            peer.socket.connection_lost(None)

    run_virtually(main())


def test_a_pong_that_nobody_asked_for_is_no_answer() -> None:
    async def main() -> None:
        peer = Peer(ping_s=20.0)
        await asyncio.sleep(30.0)
        peer.send(Frame(Opcode.PONG, b"here"))
        await asyncio.sleep(30.0)
        assert peer.transport.is_aborted
        peer.socket.connection_lost(None)

    run_virtually(main())


# --- stalls -----------------------------------------------------------------------------------------------


def test_a_peer_that_takes_nothing_is_told_of() -> None:
    async def main() -> None:
        peer = Peer(stall_s=10.0)
        peer.stop_reading()
        assert await peer.troubles.get() is Trouble.STALLED
        assert peer.transport.raw_socket.num_asked > 2
        peer.socket.connection_lost(None)

    run_virtually(main())  # a busy machine may itself hold a loop up for as long as the limit


async def test_what_the_kernel_took_is_no_progress(new_peer: NewPeer) -> None:
    peer = new_peer(stall_s=0.05)
    peer.stop_reading()
    peer.transport.num_waiting_bytes = 100  # all but these bytes went into the kernel's buffer
    async with asyncio.timeout(PATIENCE_S):
        assert await peer.troubles.get() is Trouble.STALLED


def test_a_byte_that_the_peer_acknowledged_is() -> None:
    async def main() -> None:
        peer = Peer(stall_s=10.0)
        raw_socket = peer.transport.raw_socket
        peer.stop_reading()
        while raw_socket.num_asked < 60:  # three times the limit
            raw_socket.num_acked_bytes += 1
            await asyncio.sleep(0.2)
        assert peer.troubles.empty()
        assert await peer.troubles.get() is Trouble.STALLED
        peer.socket.connection_lost(None)

    run_virtually(main())


async def test_without_the_kernels_word_what_left_for_it_counts(
    new_peer: NewPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StubRawSocket, "getsockopt", lambda *_: b"")
    peer = new_peer(stall_s=0.05)
    peer.stop_reading()
    async with asyncio.timeout(PATIENCE_S):
        assert await peer.troubles.get() is Trouble.STALLED


async def test_nothing_is_watched_while_nothing_waits(new_peer: NewPeer) -> None:
    peer = new_peer(stall_s=0.05)
    peer.stop_reading()
    peer.read_all()
    num_asked = peer.transport.raw_socket.num_asked
    other = new_peer(stall_s=0.1)
    other.stop_reading()
    async with asyncio.timeout(PATIENCE_S):
        await other.troubles.get()
    assert peer.troubles.empty()
    assert peer.transport.raw_socket.num_asked == num_asked


# --- reading ----------------------------------------------------------------------------------------------


async def test_a_read_full_of_messages_is_taken_in_turns(new_peer: NewPeer) -> None:
    peer = new_peer()
    peer.send(*[text(b"%d" % n) for n in range(1000)])
    assert len(peer.socket.recv_messages.frames) < 100
    assert not peer.transport.is_reprefill
    assert [await peer.socket.recv() for _ in range(1000)] == [str(n) for n in range(1000)]
    await turns(2)
    assert peer.transport.is_reprefill


async def test_a_read_full_of_pings_leaves_others_their_turn(new_peer: NewPeer) -> None:
    peer = new_peer()
    peer.send(*[ping(b"")] * 20_000)
    assert len(peer.pongs) < 10_000
    while not peer.transport.is_reprefill:
        await turns(1)
    assert len(peer.pongs) == 20_000


async def test_one_large_message_comes_whole(new_peer: NewPeer) -> None:
    peer = new_peer()
    peer.send(text(b"x" * 300_000))
    async with asyncio.timeout(PATIENCE_S):
        assert await peer.socket.recv() == "x" * 300_000


async def test_what_is_left_when_the_peer_ends_is_still_heard(new_peer: NewPeer) -> None:
    peer = new_peer()
    peer.send(*[text(b"%d" % n) for n in range(100)])
    peer.socket.eof_received()
    assert [await peer.socket.recv() for _ in range(100)] == [str(n) for n in range(100)]


async def test_over_its_allowance_a_socket_is_read_no_faster(new_peer: NewPeer) -> None:
    peer = new_peer(messages_per_s=100.0)
    peer.send(*[ping(b"")] * 1000)
    async with asyncio.timeout(PATIENCE_S):
        assert await peer.troubles.get() is Trouble.OVER_RATE
    assert len(peer.pongs) < 400
    assert not peer.transport.is_reprefill
    assert peer.troubles.empty(), "told once"


async def test_who_goes_on_is_told_of_as_a_flood(new_peer: NewPeer) -> None:
    peer = new_peer(messages_per_s=100.0, patience_s=0.05)  # so few that the slowest machine reads more
    peer.send(*[ping(b"")] * 2_000)
    async with asyncio.timeout(PATIENCE_S):
        assert await peer.troubles.get() is Trouble.OVER_RATE
        assert await peer.troubles.get() is Trouble.FLOODED


async def test_a_peer_that_said_goodbye_and_stays_is_cut(new_peer: NewPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.websocket.bounded_socket.CLOSE_TIMEOUT_S", 0.0)
    peer = new_peer()
    peer.send(Frame(Opcode.CLOSE, b"\x03\xe8"))
    assert not peer.transport.is_aborted
    async with asyncio.timeout(PATIENCE_S):
        while not peer.transport.is_aborted:
            await turns(1)


async def test_before_anybody_listens_trouble_cuts_the_socket(new_peer: NewPeer) -> None:
    peer = new_peer(stall_s=0.01, is_heard=False)
    peer.stop_reading()
    async with asyncio.timeout(PATIENCE_S):
        while not peer.transport.is_aborted:
            await turns(1)
