"""First audio beside peers that send as fast as they can: on a clock on which each piece of a read takes its time."""

import asyncio

import pytest
from websockets.frames import Frame, Opcode

from tests.support.patience import PATIENCE_S
from tests.support.virtual_time import VirtualLoop, run_virtually
from tests.unit.gateway.server.served import serve
from tests.unit.gateway.server.websocket.test_bounded_socket import Peer
from voicegate.gateway.server.websocket import bounded_socket
from voicegate.gateway.server.websocket.bounded_socket import BoundedSocket
from voicegate.protocol import codec
from voicegate.protocol import messages as wire

# Bytes of a read, and the time to parse and answer a piece of it: 85 pings, on a slow machine.
READ_BYTES = 8 * 1024
PIECE_S = 0.002
NUM_FLOODERS = 8
# From text to first audio the event loop goes round so often, for reading, engine, dispatcher and writer.
MOST_ROUNDS = 8
CHEAP = Frame(Opcode.TEXT, codec.encode(wire.Ping()).encode()).serialize(mask=True)


class Flooder(Peer):
    """Whenever it is read it has sent more; nothing slows it, and all answers are taken."""

    def __init__(self) -> None:
        super().__init__(messages_per_s=1e9)
        self.socket.on_text = lambda _: True
        self._more = CHEAP * (READ_BYTES // len(CHEAP))
        self.transport.resume_reading = self._send_more  # type: ignore[method-assign]

    def _send_more(self) -> None:
        asyncio.get_running_loop().call_soon(self.send_raw, self._more)

    begin = _send_more


class Listener(Peer):
    def __init__(self) -> None:
        super().__init__()
        self.has_audio = asyncio.Event()
        self.transport.write = self._take  # type: ignore[method-assign]

    def _take(self, data: bytes) -> None:
        if data[0] == 0x80 | Opcode.BINARY:
            self.has_audio.set()


async def first_audio_s(num_flooders: int) -> float:
    loop, listener = asyncio.get_running_loop(), Listener()
    served = await serve(listener.socket)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(served.dispatcher.run()), tasks.create_task(served.connection.run())]
        for flooder in [Flooder() for _ in range(num_flooders)]:
            flooder.begin()
        for _ in range(10):
            await asyncio.sleep(0)  # the flood goes on
        began_s = loop.time()
        for message in (wire.Open(context="a"), wire.Text("a", "first audio, please. ")):
            listener.send(Frame(Opcode.TEXT, codec.encode(message).encode()))
        async with asyncio.timeout(PATIENCE_S):
            await listener.has_audio.wait()
        took_s = loop.time() - began_s
        for task in running:
            task.cancel()
    return took_s


def added_s(monkeypatch: pytest.MonkeyPatch) -> float:
    """By the flood."""
    parse = BoundedSocket._parse

    def slow_parse(socket: BoundedSocket, piece: bytes) -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.spend(PIECE_S)
        return parse(socket, piece)

    monkeypatch.setattr(BoundedSocket, "_parse", slow_parse)
    return run_virtually(first_audio_s(NUM_FLOODERS)) - run_virtually(first_audio_s(0))


def test_first_audio_waits_for_a_piece_of_each_flood_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert added_s(monkeypatch) <= MOST_ROUNDS * NUM_FLOODERS * PIECE_S


def test_and_for_whole_reads_where_nobody_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the bound above is one."""
    monkeypatch.setattr(bounded_socket, "_TURN_S", 3600.0)
    assert added_s(monkeypatch) > MOST_ROUNDS * NUM_FLOODERS * PIECE_S
