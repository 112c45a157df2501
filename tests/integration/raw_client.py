"""A peer that minds no rules: a bare TCP socket after the WebSocket handshake, and the bytes of single frames."""

import asyncio
import base64
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import urlsplit

from websockets.datastructures import Headers
from websockets.frames import Frame, Opcode

from tests.integration.wire_client import TIMEOUT_S
from voicegate.protocol import codec
from voicegate.protocol import messages as wire

_RECEIVE_BUFFER_BYTES: Final = 4096
_UPGRADE_LINES: Final = (
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: " + base64.b64encode(secrets.token_bytes(16)),
)


def text_frame(message: wire.ClientMessage) -> bytes:
    return frame(Opcode.TEXT, codec.encode(message).encode())


def frame(opcode: Opcode, payload: bytes) -> bytes:
    return Frame(opcode, payload).serialize(mask=True)


async def get(url: str, path: str, method: str = "GET") -> tuple[int, Headers, str]:
    return await exchange(url, f"{method} {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n")


async def exchange(url: str, request: str) -> tuple[int, Headers, str]:
    """Over a bare socket, what a load balancer sees: status, headers, body."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        writer.write(request.encode())
        async with asyncio.timeout(TIMEOUT_S):
            raw = (await reader.read()).decode()
    finally:
        writer.close()
        await writer.wait_closed()
    head, _, body = raw.partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    return int(status.split()[1]), Headers([line.split(": ", 1) for line in lines]), body


class RawPeer:
    """Reads only when told to."""

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        """Raises OSError once the server has hung up."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._loop.sock_sendall(self._raw, data)
        except TimeoutError:  # an OSError, as a hang-up is
            raise AssertionError("the server neither reads nor hangs up") from None

    async def read_until(self, end: bytes) -> bytes:
        received = bytearray()
        async with asyncio.timeout(TIMEOUT_S):
            while end not in received:
                data = await self._loop.sock_recv(self._raw, 1 << 16)
                assert data, f"the server hung up after {bytes(received)!r}"
                received += data
        return bytes(received)

    async def read_to_end(self) -> bytes:
        """All that comes until the server hangs up, politely or not."""
        received = bytearray()
        async with asyncio.timeout(TIMEOUT_S):
            with contextlib.suppress(ConnectionError):
                while data := await self._loop.sock_recv(self._raw, 1 << 16):
                    received += data
        return bytes(received)

    async def read_slowly(self, num_bytes: int, every_s: float) -> bytes:
        """All that comes, so many bytes at a time."""
        received = bytearray()
        async with asyncio.timeout(TIMEOUT_S):
            with contextlib.suppress(ConnectionError):
                while data := await self._loop.sock_recv(self._raw, num_bytes):
                    received += data
                    await asyncio.sleep(every_s)
        return bytes(received)

    def stop_sending(self) -> None:
        with contextlib.suppress(OSError):  # the server has hung up
            self._raw.shutdown(socket.SHUT_WR)

    async def ask_and_go(self, head: str) -> None:
        """A request for a socket or for speech, of one who does not wait for the answer."""
        await self.send(head.encode() + b"\r\n".join([*_UPGRADE_LINES, b"Content-Length: 0", b"", b""]))
        self.stop_sending()

    async def shake_hands(self, url: str, behind: bytes = b"") -> None:
        """`behind`: sent with the request, of one who does not wait for the answer."""
        address = urlsplit(url)
        lines = [f"GET {address.path} HTTP/1.1".encode(), f"Host: {address.netloc}".encode(), *_UPGRADE_LINES]
        await self.send(b"\r\n".join([*lines, b"", b""]) + behind)
        assert (await self._loop.sock_recv(self._raw, 12)).startswith(b"HTTP/1.1 101")


@contextlib.asynccontextmanager
async def raw_connection(url: str) -> AsyncIterator[RawPeer]:
    """Connected, nothing sent yet; with little room for what the server sends."""
    address = urlsplit(url)
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        raw.setblocking(False)
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.get_running_loop().sock_connect(raw, (address.hostname, address.port))
        yield RawPeer(raw)


@contextlib.asynccontextmanager
async def raw_peer(url: str) -> AsyncIterator[RawPeer]:
    """After the handshake."""
    async with raw_connection(url) as peer:
        await peer.shake_hands(url)
        yield peer
