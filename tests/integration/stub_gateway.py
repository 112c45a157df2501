"""A gateway that plays a script, message by message, for clients of any kind."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from voicegate.gateway.server.entrance.accepting import stop_accepting
from voicegate.protocol import audio_message, codec
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage

PACKET = b"\xf8" + bytes(9)
LIMITS = wire.Limits(contexts=8, text_bytes=1000, context_text_bytes=10_000, lead_ms=1000, resume_seconds=0)


class Peer:
    """One connection, from the server's side."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket

    async def send(self, *messages: wire.ServerMessage | AudioMessage) -> None:
        for message in messages:
            if isinstance(message, AudioMessage):
                await self.socket.send(audio_message.pack(message))
            else:
                await self.socket.send(codec.encode(message))

    async def receive(self) -> wire.ClientMessage:
        """The next message; pings are answered, as any server does."""
        while isinstance(message := codec.decode_client(await self.socket.recv()), wire.Ping):
            await self.send(wire.Pong(message.t))
        return message

    async def greet(self) -> None:
        await self.send(wire.Ready("s", "", "stub", ("hum",), "hum", ("clause",), LIMITS))

    async def accept(self, handle: int = 0) -> str:
        """Answer an `open`; returns the context. A player's reports of one that is over may come before."""
        while isinstance(message := await self.receive(), wire.Playback):
            pass
        assert isinstance(message, wire.Open)
        await self.send(wire.Opened(message.context, handle, "hum", message.format, 24_000, 312))
        return message.context

    async def speak(self, context: str, handle: int = 0) -> None:
        await self.send(
            AudioMessage(handle, 0, 0, (PACKET,), is_first=True),
            AudioMessage(handle, 1, 960, (), is_last=True),
            wire.Done(context, 20, 1, wire.Timing()),
        )

    def drop(self) -> None:
        """Without a close frame, as a crash or a cut cable does."""
        self.socket.transport.abort()


Script = Callable[[Peer], Awaitable[None]]
Pages = Callable[[Request], Response | None]


@asynccontextmanager
async def stub_gateway(
    scripts: Sequence[Script | HTTPStatus], pages: Pages = lambda _request: None
) -> AsyncIterator[str]:
    """Connections play `scripts` in turn, or are refused, after `pages`; a failing script fails the test."""
    remaining = list(scripts)
    failures: list[BaseException] = []

    def refuse(socket: ServerConnection, request: Request) -> Response | None:
        if (page := pages(request)) is not None:
            return page
        status = remaining[0]
        if not isinstance(status, HTTPStatus):
            return None
        del remaining[0]
        response = socket.respond(status, "not now\n")
        response.headers["Retry-After"] = "0"
        return response

    async def play(socket: ServerConnection) -> None:
        script = remaining.pop(0)
        assert not isinstance(script, HTTPStatus)
        try:
            await script(Peer(socket))
        except ConnectionClosed:
            pass
        except Exception as error:  # noqa: BLE001 - raised below, in the test
            failures.append(error)

    # Browsers give up a server that picks none of the subprotocols that they offer.
    async with serve(
        play, "127.0.0.1", 0, process_request=refuse, subprotocols=[Subprotocol(wire.SUBPROTOCOL)], compression=None
    ) as server:
        host, port = server.sockets[0].getsockname()[:2]
        try:
            yield f"ws://{host}:{port}"
        finally:
            await stop_accepting(server.sockets)
    assert not failures, failures
    assert not remaining, "connections that never came"
