"""A client on the wire that counts what counts, drops its socket at will, and comes back for the rest."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from websockets.asyncio.client import ClientConnection, connect
from websockets.protocol import State

from tests.integration.wire_client import TIMEOUT_S, Running
from voicegate.protocol import audio_message, codec
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage

Message = wire.ServerMessage | AudioMessage
T = TypeVar("T")


class ResumingClient:
    def __init__(self, url: str, **options: Any) -> None:
        self._url = url
        self._options = options
        self.websocket: ClientConnection
        self._websockets: list[ClientConnection] = []
        self.ready: wire.Ready  # of its session
        self.frames: list[str | bytes] = []  # that count, in order, over all sockets

    async def connect(self) -> None:
        await self.dial()
        self.ready = await self.until(wire.Ready)
        await self.send(wire.Ack(0))

    async def dial(self) -> None:
        self.websocket = await connect(self._url, **{"compression": None, "close_timeout": 1, **self._options})
        self._websockets.append(self.websocket)

    def drop(self) -> None:
        if self.websocket.state is not State.CLOSED:  # asyncio's transports cannot be aborted twice
            self.websocket.transport.abort()

    async def leave(self) -> None:
        """Without a word, on any socket."""
        for websocket in self._websockets:
            if websocket.state is not State.CLOSED:
                websocket.transport.abort()
            await websocket.wait_closed()

    async def come_back(self, *, received: int | None = None) -> wire.Resumed:
        await self.dial()
        await self.until(wire.Ready)
        await self.ask(received=received)
        return await self.until(wire.Resumed)

    async def ask(self, *, token: str | None = None, session: str | None = None, received: int | None = None) -> None:
        num_received = len(self.frames) if received is None else received
        await self.send(wire.Resume(session or self.ready.session, token or self.ready.token, num_received))

    async def send(self, *messages: wire.ClientMessage) -> None:
        for message in messages:
            await self.websocket.send(codec.encode(message))

    async def receive(self) -> Message:
        async with asyncio.timeout(TIMEOUT_S):
            raw = await self.websocket.recv()
        message = audio_message.unpack(raw) if isinstance(raw, bytes) else codec.decode_server(raw)
        if not isinstance(message, wire.UNCOUNTED_OF_SERVER):
            self.frames.append(raw)
        return message

    async def until(self, kind: type[T]) -> T:
        while True:
            message = await self.receive()
            if isinstance(message, kind):
                return message

    @property
    def packets(self) -> list[bytes]:
        return [packet for raw in self.frames if isinstance(raw, bytes) for packet in audio_message.unpack(raw).packets]


def wait_for_nobody(running: Running) -> None:
    """Stops waiting for clients that drop from here on; earlier ones had all the time that a test needs."""
    running.gateway._resumption._absences._limit_s = 0.0


@contextlib.asynccontextmanager
async def resuming(url: str, **options: Any) -> AsyncIterator[ResumingClient]:
    client = ResumingClient(url, **options)
    try:
        await client.connect()
        yield client
    finally:
        await client.leave()
