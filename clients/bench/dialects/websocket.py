"""A conversation over a WebSocket: the shell around a dialect's phrases, which are pure."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.protocol import State
from websockets.typing import Subprotocol

from voicegate.clients.bench.dialects.conversation import (
    NO_ROOM_STATUSES,
    Chunk,
    Connect,
    Conversation,
    ConversationLost,
    Ended,
)
from voicegate.clients.bench.plan import Reader, Target, Turn
from voicegate.clients.python.errors import InvalidInput
from voicegate.clients.python.refusal import answered
from voicegate.protocol.errors import ProtocolViolation

_TIMEOUT_S: Final = 15.0
# Buffer of a slow reader: about a second of Opus waits in its kernel, the rest at the server.
_SLOW_RECEIVE_BYTES: Final = 4096
# Messages that wait in this process: a slow reader's wait at the server.
_MAX_QUEUE: Final = 64

Frame = str | bytes


class Phrases(Protocol):
    """A dialect on one connection: what to send, and what is meant by what comes. No I/O.

    `take` raises ConversationLost where nothing can follow, and ProtocolViolation for what it cannot read.
    """

    @property
    def is_spent(self) -> bool: ...

    def begin(self, turn: Turn) -> Sequence[Frame]: ...

    def say(self, text: str) -> Sequence[Frame]: ...

    def end(self) -> Sequence[Frame]: ...

    def cancel(self, played_ms: int) -> Sequence[Frame] | None:
        """None: the protocol has no word for it but to hang up."""

    @property
    def is_cancel_answered(self) -> bool: ...

    def take(self, raw: Frame) -> Chunk | Ended | None:
        """None: nothing that the bench asks for."""

    def hung_up(self) -> Ended | None:
        """The server has closed; None: in the middle of a turn."""


class SocketConversation:
    """Made by what `speaking` returns."""

    def __init__(self, connection: ClientConnection, phrases: Phrases) -> None:
        self._connection = connection
        self._phrases = phrases
        self._has_hung_up = False

    @property
    def is_spent(self) -> bool:
        return self._has_hung_up or self._connection.state is not State.OPEN or self._phrases.is_spent

    async def begin(self, turn: Turn) -> None:
        await self._send(self._phrases.begin(turn))

    async def say(self, text: str) -> None:
        await self._send(self._phrases.say(text))

    async def end(self) -> None:
        await self._send(self._phrases.end())

    async def cancel(self, played_ms: int) -> bool:
        frames = self._phrases.cancel(played_ms)
        if frames is None:
            self._has_hung_up = True
            await self._connection.close()
            return True
        await self._send(frames)
        return not self._phrases.is_cancel_answered

    async def receive(self) -> Chunk | Ended:
        while True:
            try:
                taken = self._phrases.take(await self._connection.recv())
            except ConnectionClosed as error:
                if self._has_hung_up:  # we have: that is how one interrupts here
                    return Ended()
                self._has_hung_up = True
                if (ended := self._phrases.hung_up()) is not None:
                    return ended
                raise ConversationLost(f"the socket was closed: {error}") from error
            except ProtocolViolation as error:
                raise ConversationLost(f"the server sent what this client cannot read: {error.message}") from error
            if taken is not None:
                return taken

    async def close(self) -> None:
        await self._connection.close()

    async def _send(self, frames: Sequence[Frame]) -> None:
        try:
            for frame in frames:
                await self._connection.send(frame)
        except ConnectionClosed as error:
            raise ConversationLost(f"the socket was closed: {error}") from error


def speaking(
    url_of: Callable[[Target], str],
    phrases_of: Callable[[Target, Frame | None], Phrases],
    *,
    subprotocol: str | None = None,
    is_greeted: bool = False,
) -> Connect:
    """`url_of` raises InvalidInput. `is_greeted`: the first message is the server's, and `phrases_of` gets it."""

    async def connect(target: Target, reader: Reader) -> Conversation:
        try:
            url = url_of(target)
            context = target.tls_for(url)
        except InvalidInput as error:
            raise ConversationLost(str(error)) from error
        is_slow = reader is Reader.SLOW
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                connection = await connect_socket(
                    url,
                    subprotocols=None if subprotocol is None else [Subprotocol(subprotocol)],
                    additional_headers=target.headers,
                    compression=None,
                    max_size=None,
                    max_queue=1 if is_slow else _MAX_QUEUE,
                    ping_interval=None,
                    proxy=None,
                    ssl=context,
                    sock=await _slow_socket(url) if is_slow else None,
                )
                return SocketConversation(
                    connection, phrases_of(target, await connection.recv() if is_greeted else None)
                )
        except InvalidStatus as error:
            response = error.response
            text = answered(url, response.status_code, response.body, response.reason_phrase)
            raise ConversationLost(text, is_refused=response.status_code in NO_ROOM_STATUSES) from error
        except (OSError, TimeoutError, WebSocketException) as error:
            raise ConversationLost(f"{url}: cannot connect ({str(error) or type(error).__name__})") from error
        except ProtocolViolation as error:
            raise ConversationLost(f"{url} does not speak this protocol: {error.message}") from error

    return connect


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
