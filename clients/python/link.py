"""One session with a gateway: routes what arrives to its contexts. Used up when the session ends; see client.py."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from voicegate.clients.python.backoff import Backoff
from voicegate.clients.python.context import Context
from voicegate.clients.python.dialing import LinkOptions, dial
from voicegate.clients.python.errors import ConnectionLost, InvalidInput
from voicegate.clients.python.line import Line
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage

log = logging.getLogger(__name__)


class Link:
    """Made by `connect_link`. Contexts of it fail with ConnectionLost when the session is lost."""

    def __init__(self, line: Line, *, max_unread_bytes: int) -> None:
        self.is_draining = False
        self._max_unread_bytes = max_unread_bytes
        self._contexts: dict[str, Context] = {}
        self._by_handle: dict[int, Context] = {}
        self._loss: ConnectionLost | None = None
        self._cancels: set[asyncio.Task[None]] = set()
        self._line = line
        line.is_needed = lambda: bool(self._contexts)
        self._reader = asyncio.create_task(self._read_all())

    @property
    def ready(self) -> wire.Ready:
        return self._line.ready

    @property
    def is_up(self) -> bool:
        """Whether there is a socket now."""
        return self._line.is_up

    @property
    def is_usable(self) -> bool:
        """Whether a new context may be opened here."""
        return self._loss is None and not self.is_draining

    @property
    def is_lost(self) -> bool:
        return self._loss is not None

    def has(self, context_id: str) -> bool:
        """Whether the server has not said yet how it ended."""
        return context_id in self._contexts

    async def open(self, message: wire.Open) -> Context:
        """Raises ContextFailed, ConnectionLost."""
        if message.context in self._contexts:
            raise InvalidInput(f"context {message.context} is open already")
        context = Context(
            message.context,
            send=self._line.send,
            cancel_soon=lambda: self._cancel_at_server(message.context),
            max_text_bytes=self.ready.limits.text_bytes,
            max_unread_bytes=self._max_unread_bytes,
        )
        self._contexts[message.context] = context
        try:
            await self._line.send(message)
            await context.wait_opened()
        except asyncio.CancelledError:
            self._cancel_at_server(message.context)  # it stays until the server has said how it ended
            raise
        except Exception:
            if self._contexts.get(message.context) is context:  # else another has its name by now
                self._forget(message.context)
            raise
        return context

    async def close(self) -> None:
        """Contexts that still run are lost."""
        await self._line.close()
        await self._reader
        await asyncio.gather(*self._cancels)

    # --- sending ------------------------------------------------------------------------------------------

    def _cancel_at_server(self, context_id: str) -> None:
        """Without waiting: the reader must go on reading."""
        task = asyncio.create_task(self._send_cancel(context_id))
        self._cancels.add(task)
        task.add_done_callback(self._cancels.discard)

    async def _send_cancel(self, context_id: str) -> None:
        with suppress(ConnectionLost):  # the server cancels what was open on a lost socket
            await self._line.send(wire.Cancel(context_id))

    # --- receiving ----------------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        try:
            while True:
                self._receive(await self._line.receive())
        except ConnectionLost as loss:
            self._lose(loss)
        except Exception as fault:  # the root of the reader's task: waiters would wait for ever
            log.exception("the client's reader failed")
            self._lose(ConnectionLost(f"the client's reader failed: {fault!r}"))

    def _lose(self, loss: ConnectionLost) -> None:
        self._loss = loss
        for context in self._contexts.values():
            context.lose(loss)
        self._contexts.clear()
        self._by_handle.clear()

    def _receive(self, message: wire.ServerMessage | AudioMessage) -> None:
        match message:
            case AudioMessage():
                self._hand_over(self._by_handle.get(message.handle), message)
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
            case wire.Draining():
                self.is_draining = True
            case _:
                pass

    def _hand_over(self, context: Context | None, message: wire.ServerMessage | AudioMessage) -> None:
        """Hands over a message. Messages of a context that has ended are dropped."""
        if context is not None and context.receive(message):
            self._cancel_at_server(context.context_id)

    def _forget(self, context_id: str) -> Context | None:
        context = self._contexts.pop(context_id, None)
        for handle, owner in list(self._by_handle.items()):
            if owner is context:
                del self._by_handle[handle]
        return context


async def connect_link(
    url: str,
    options: LinkOptions,
    *,
    backoff: Backoff | None = None,
    on_resumed: Callable[[], None] = lambda: None,
) -> Link:
    """`backoff`: of coming back to a session that drops; None: it is lost. Raises ConnectFailed, InvalidInput."""
    socket, ready = await dial(url, options)
    line = Line(socket, ready, url=url, options=options, backoff=backoff)
    line.on_resumed = on_resumed
    try:
        await line.begin()
    except BaseException:
        socket.transport.abort()
        raise
    return Link(line, max_unread_bytes=options.max_unread_bytes)
