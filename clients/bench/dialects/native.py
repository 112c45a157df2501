"""docs/protocol.md, as the bench speaks it: one context after another on one socket, and nothing kept.

Not the client of clients/python: a slow reader has to stop reading its socket, which that one never does.
"""

import asyncio
import socket
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.typing import Subprotocol

from voicegate.clients.bench.dialects.conversation import Chunk, ConversationLost, Ended
from voicegate.clients.bench.plan import Reader, Target, Turn
from voicegate.clients.python.audio import duration_48k
from voicegate.clients.python.errors import InvalidInput
from voicegate.clients.python.link import stream_url
from voicegate.protocol import audio_message, codec
from voicegate.protocol import messages as wire
from voicegate.protocol.errors import ErrorCode
from voicegate.protocol.messages import SUBPROTOCOL

_TIMEOUT_S: Final = 15.0
# Of a slow reader: about a second of Opus waits in its kernel, the rest at the server.
_SLOW_RECEIVE_BYTES: Final = 4096
_NO_ROOM: Final = (ErrorCode.OVERLOADED.value, ErrorCode.TOO_MANY_CONTEXTS.value)


class NativeConversation:
    """Made by `connect`."""

    def __init__(self, connection: ClientConnection, codec_name: str, limits: wire.Limits) -> None:
        self._connection = connection
        self._limits = limits
        self._codec_name = codec_name
        self._num_turns = 0
        self._context = ""
        self._opened: wire.Opened | None = None

    async def begin(self, turn: Turn) -> None:
        self._num_turns += 1
        self._context, self._opened = f"t{self._num_turns}", None
        message: dict[str, Any] = {"type": "open", "context": self._context, "voice": turn.voice, "mode": turn.mode}
        message["format"] = {"codec": self._codec_name}
        if turn.is_hurried:
            message["pace"] = {"lead_ms": self._limits.lead_ms}
        await self._send(msgspec.json.encode(message).decode())

    async def say(self, text: str) -> None:
        await self._send(codec.encode(wire.Text(self._context, text)))

    async def end(self) -> None:
        await self._send(codec.encode(wire.End(self._context)))

    async def cancel(self, played_ms: int) -> None:
        await self._send(codec.encode(wire.Cancel(self._context, played_ms)))

    async def receive(self) -> Chunk | Ended:
        while True:
            try:
                raw = await self._connection.recv()
            except ConnectionClosed as error:
                raise ConversationLost(f"the socket was closed: {error}") from error
            taken = self._take_audio(raw) if isinstance(raw, bytes) else self._take(codec.decode_server(raw))
            if taken is not None:
                return taken

    async def close(self) -> None:
        await self._connection.close()

    async def _send(self, frame: str) -> None:
        try:
            await self._connection.send(frame)
        except ConnectionClosed as error:
            raise ConversationLost(f"the socket was closed: {error}") from error

    def _take_audio(self, raw: bytes) -> Chunk | None:
        message = audio_message.unpack(raw)
        if self._opened is None or message.handle != self._opened.handle or not message.packets:
            return None
        num_48k = duration_48k(message.packets, self._opened.format, self._opened.sample_rate)
        if self._opened.format.codec == "opus":
            return Chunk(num_48k)
        return Chunk(num_48k, b"".join(message.packets), self._opened.sample_rate)

    def _take(self, message: wire.ServerMessage) -> Ended | None:
        match message:
            case wire.Opened() if message.context == self._context:
                self._opened = message
            case wire.Done() if message.context == self._context:
                return Ended()
            case wire.Cancelled() if message.context == self._context:
                return Ended(is_cancelled=True)
            case wire.Error() if message.fatal and message.context == self._context:
                return Ended(is_refused=message.code in _NO_ROOM, message=f"{message.code}: {message.message}")
            case wire.Error() if message.fatal:
                raise ConversationLost(f"{message.code}: {message.message}")
            case _:
                pass
        return None


async def connect(target: Target, reader: Reader) -> NativeConversation:
    """Raises ConversationLost."""
    try:
        url = stream_url(target.url)
    except InvalidInput as error:
        raise ConversationLost(str(error)) from error
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            connection = await connect_socket(
                url,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                additional_headers=target.headers,
                compression=None,
                max_size=None,
                max_queue=1 if reader is Reader.SLOW else 64,
                ping_interval=None,
                proxy=None,
                sock=await _slow_socket(url) if reader is Reader.SLOW else None,
            )
            ready = codec.decode_server(await connection.recv())
    except (OSError, TimeoutError, WebSocketException) as error:
        raise ConversationLost(f"{url}: cannot connect ({str(error) or type(error).__name__})") from error
    if not isinstance(ready, wire.Ready):
        raise ConversationLost(f"{url} did not begin with `ready`")
    return NativeConversation(connection, target.codec, ready.limits)


async def _slow_socket(url: str) -> socket.socket:
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    port = parts.port or (443 if parts.scheme == "wss" else 80)
    (family, kind, proto, _, address), *_ = await loop.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    made = socket.socket(family, kind, proto)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SLOW_RECEIVE_BYTES)
    await loop.sock_connect(made, address)
    return made
