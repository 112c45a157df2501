"""One WebSocket to a gateway: routes what arrives to its contexts. Used up when the socket closes; see client.py."""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final, Literal
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus, InvalidURI, WebSocketException
from websockets.typing import Subprotocol

from voicegate.clients.python.context import Context
from voicegate.clients.python.errors import ConnectFailed, ConnectionLost, InvalidInput
from voicegate.protocol import audio_message, codec
from voicegate.protocol import messages as wire
from voicegate.protocol.errors import CloseCode, ErrorCode, ProtocolViolation
from voicegate.protocol.messages import STREAM_PATH, SUBPROTOCOL

# Above what any server of this protocol sends at once: a second of PCM is 48 kB.
_MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
# The server, or a proxy before it, is busy, starting or going away.
_TRANSIENT_STATUSES: Final = (429, 502, 503, 504)

_KEY_VARIABLE: Final = "VOICEGATE_API_KEY"


@dataclass(frozen=True, slots=True)
class LinkOptions:
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # a key may be among them
    connect_timeout_s: float = 10.0
    close_timeout_s: float = 2.0
    # Audio of one context that waits to be read: 8 MiB are half an hour of Opus, three minutes of PCM.
    max_unread_bytes: int = 8 * 1024 * 1024


class Link:
    """Made by `connect_link`. Contexts of it fail with ConnectionLost when the socket drops."""

    def __init__(self, socket: ClientConnection, ready: wire.Ready, options: LinkOptions) -> None:
        self.ready = ready
        self.is_draining = False
        self._socket = socket
        self._options = options
        self._contexts: dict[str, Context] = {}
        self._by_handle: dict[int, Context] = {}
        self._loss: ConnectionLost | None = None
        self._last_words = ""
        self._cancels: set[asyncio.Task[None]] = set()
        self._reader = asyncio.create_task(self._read_all())

    @property
    def is_usable(self) -> bool:
        """Whether a new context may be opened here."""
        return self._loss is None and not self.is_draining

    @property
    def is_lost(self) -> bool:
        return self._loss is not None

    async def open(self, message: wire.Open) -> Context:
        """Raises ContextFailed, ConnectionLost."""
        if message.context in self._contexts:
            raise InvalidInput(f"context {message.context} is open already")
        context = Context(
            message.context,
            send=self._send,
            max_text_bytes=self.ready.limits.text_bytes,
            max_unread_bytes=self._options.max_unread_bytes,
        )
        self._contexts[message.context] = context
        try:
            await self._send(message)
            await context.wait_opened()
        except asyncio.CancelledError:
            self._cancel_at_server(message.context)  # it stays until the server has said how it ended
            raise
        except Exception:
            self._forget(message.context)
            raise
        return context

    async def close(self) -> None:
        """Contexts that still run are lost."""
        await self._socket.close()
        await self._reader
        await asyncio.gather(*self._cancels)

    # --- sending ------------------------------------------------------------------------------------------

    async def _send(self, message: wire.ClientMessage) -> None:
        try:
            frame = codec.encode(message)
        except ProtocolViolation as error:
            raise InvalidInput(error.message) from error
        try:
            await self._socket.send(frame)
        except ConnectionClosed as error:
            raise self._loss or self._describe_loss() from error

    def _cancel_at_server(self, context_id: str) -> None:
        """Without waiting: the reader must go on reading."""
        task = asyncio.create_task(self._send_cancel(context_id))
        self._cancels.add(task)
        task.add_done_callback(self._cancels.discard)

    async def _send_cancel(self, context_id: str) -> None:
        with suppress(ConnectionLost):  # the server cancels what was open on a lost socket
            await self._send(wire.Cancel(context_id))

    # --- receiving ----------------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        try:
            while True:
                self._receive(await self._socket.recv())
        except ConnectionClosed:
            pass
        except ProtocolViolation as violation:
            self._loss = ConnectionLost(f"the server sent what this client cannot read: {violation.message}")
        finally:
            self._loss = self._loss or self._describe_loss()
            for context in self._contexts.values():
                context.lose(self._loss)
            self._contexts.clear()
            self._by_handle.clear()
        await self._socket.close(CloseCode.INVALID_DATA)  # does nothing where it is closed already

    def _receive(self, raw: str | bytes) -> None:
        if isinstance(raw, bytes):
            audio = audio_message.unpack(raw)
            self._hand_over(self._by_handle.get(audio.handle), audio)
            return
        message = codec.decode_server(raw)
        match message:
            case wire.Opened():
                if (context := self._contexts.get(message.context)) is not None:
                    self._by_handle[message.handle] = context
                self._hand_over(context, message)
            case wire.Alignment() | wire.Flushed():
                self._hand_over(self._contexts.get(message.context), message)
            case wire.Done() | wire.Cancelled():
                self._hand_over(self._forget(message.context), message)
            case wire.Error(context=str(context_id)):
                context = self._forget(context_id) if message.fatal else self._contexts.get(context_id)
                self._hand_over(context, message)
            case wire.Error():
                self._last_words = f"{message.code}: {message.message}"
            case wire.Draining():
                self.is_draining = True
            case _:
                pass

    def _hand_over(self, context: Context | None, message: wire.ServerMessage | audio_message.AudioMessage) -> None:
        """What concerns a context that has ended is dropped."""
        if context is not None and context.receive(message):
            self._cancel_at_server(context.context_id)

    def _forget(self, context_id: str) -> Context | None:
        context = self._contexts.pop(context_id, None)
        for handle, owner in list(self._by_handle.items()):
            if owner is context:
                del self._by_handle[handle]
        return context

    def _describe_loss(self) -> ConnectionLost:
        code, reason = self._socket.close_code, self._socket.close_reason
        details = [f"close code {code}"] if code is not None else ["no close frame"]
        details += [text for text in (reason, self._last_words) if text]
        return ConnectionLost(f"the connection to the gateway was lost ({'; '.join(details)})")


async def connect_link(url: str, options: LinkOptions) -> Link:
    """Raises ConnectFailed, InvalidInput."""
    url = stream_url(url)
    try:
        async with asyncio.timeout(options.connect_timeout_s):
            return await _connect(url, options)
    except TimeoutError as error:
        raise ConnectFailed(f"{url}: no answer within {options.connect_timeout_s:g} s", is_transient=True) from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise ConnectFailed(f"{url}: cannot connect ({reason})", is_transient=True) from error
    except (ConnectionClosed, InvalidMessage) as error:
        raise ConnectFailed(f"{url} hung up: {error}", is_transient=True) from error
    except InvalidStatus as error:
        raise _refusal(url, error) from error
    except InvalidURI as error:
        raise InvalidInput(str(error)) from error
    except (WebSocketException, ProtocolViolation) as error:
        raise ConnectFailed(f"{url} does not speak this protocol: {error}", is_transient=False) from error


async def _connect(url: str, options: LinkOptions) -> Link:
    socket = await connect_socket(
        url,
        subprotocols=[Subprotocol(SUBPROTOCOL)],
        additional_headers=dict(options.headers),
        compression=None,
        open_timeout=None,
        close_timeout=options.close_timeout_s,
        max_size=_MAX_MESSAGE_BYTES,
        proxy=_proxy_for(url),
    )
    try:
        ready = codec.decode_server(await socket.recv())
        if not isinstance(ready, wire.Ready):
            raise ProtocolViolation(ErrorCode.BAD_MESSAGE, "it did not begin with `ready`")
    except BaseException:
        socket.transport.abort()
        raise
    return Link(socket, ready, options)


def key_headers(api_key: str | None) -> dict[str, str]:
    """Of a request with this key, or the environment's. Raises InvalidInput for what cannot be sent."""
    key = os.environ.get(_KEY_VARIABLE) if api_key is None else api_key
    if not key:
        return {}
    if not all("!" <= char <= "~" for char in key):
        raise InvalidInput("an API key is printable ASCII without spaces; this one is not")
    return {"Authorization": f"Bearer {key}"}


def stream_url(url: str) -> str:
    """`url` with ws for http, and the protocol's path where it names none. Raises InvalidInput."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # checked only when asked for
    except ValueError as error:
        raise InvalidInput(f"{url!r} is no address: {error}") from error
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    if scheme not in ("ws", "wss") or not parts.netloc:
        raise InvalidInput(f"{url!r} is no gateway's address; it looks like ws://127.0.0.1:8080")
    path = STREAM_PATH if parts.path in ("", "/") else parts.path
    return parts._replace(scheme=scheme, path=path).geturl()


def _refusal(url: str, error: InvalidStatus) -> ConnectFailed:
    response = error.response
    retry_after = response.headers.get("Retry-After", "")
    reason = (response.body or b"").decode(errors="replace").strip().partition("\n")[0][:200]
    return ConnectFailed(
        f"{url} answered HTTP {response.status_code}: {reason or response.reason_phrase}",
        is_transient=response.status_code in _TRANSIENT_STATUSES,
        status=response.status_code,
        retry_after_ms=int(retry_after) * 1000 if retry_after.isdecimal() else None,
    )


def _proxy_for(url: str) -> Literal[True] | None:
    """The environment's proxy, but never to this machine, whatever no_proxy says."""
    host = urlsplit(url).hostname or ""
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    return None if is_loopback else True
