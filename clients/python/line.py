"""The messages of one session, to and fro, over as many sockets as it takes. It must not know contexts.

Where the server resumes sessions, a socket that drops is replaced by another, and what was lost with it is sent again,
by both sides; only the delay is noticed. docs/protocol.md, section 9.
"""

import asyncio
import itertools
import logging
import random
from collections.abc import Callable
from typing import Any, Final

from msgspec import UNSET
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from voicegate.clients.python.address import resuming_url
from voicegate.clients.python.backoff import Backoff
from voicegate.clients.python.dialing import LinkOptions, dial
from voicegate.clients.python.errors import ConnectFailed, ConnectionLost, InvalidInput
from voicegate.protocol import audio_message, codec
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.delivery import Received, Sent
from voicegate.protocol.errors import CloseCode, ProtocolViolation, means_only_the_socket

# Text that the server has not acknowledged: more waits. Servers acknowledge long before that, so this is for
# the time without a connection. Lower holds a writer up sooner, higher costs memory.
_MAX_UNACKNOWLEDGED_BYTES: Final = 1024 * 1024

_NORMAL_CLOSURE: Final = 1000  # RFC 6455, 7.4.1

log = logging.getLogger(__name__)


class Line:
    """`is_needed` is asked whether a dropped session is worth coming back for, `on_resumed` told that it came back."""

    def __init__(
        self,
        socket: ClientConnection,
        ready: wire.Ready,
        *,
        url: str,
        options: LinkOptions,
        backoff: Backoff | None,
    ) -> None:
        """`backoff` None: it ends with its first socket."""
        self.ready = ready
        self.is_needed: Callable[[], bool] = lambda: False
        self.on_resumed: Callable[[], None] = lambda: None
        self._socket = socket
        self._url = url
        self._options = options
        self._backoff = backoff
        self._is_resumable = backoff is not None and bool(ready.token) and ready.limits.resume_seconds > 0
        self.is_up = True  # whether what is sent goes out at once
        self._is_closing = False
        self._loss: ConnectionLost | None = None
        self._sent = Sent()
        self._received = Received()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._patience: asyncio.Timeout | None = None  # while it comes back
        self._last_words = ""
        self._errands: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def begin(self) -> None:
        """Before anything else is sent."""
        if self._is_resumable:
            await self._send_now(wire.Ack(0))

    async def close(self) -> None:
        if not self._is_closing and self._patience is not None and not self._patience.expired():
            self._patience.reschedule(self._loop.time())
        self._is_closing = True
        await self._close_socket(self._socket)
        await asyncio.gather(*self._errands)

    async def _close_socket(self, socket: ClientConnection, code: int = _NORMAL_CLOSURE) -> None:
        """Also one whose peer takes nothing, for which the library would wait as long as for a ping's answer."""
        try:
            async with asyncio.timeout(self._options.close_timeout_s):
                await socket.close(code)
        except TimeoutError:
            socket.transport.abort()

    # --- sending ------------------------------------------------------------------------------------------

    async def send(self, message: wire.SessionMessage, on_leaving: Callable[[], None] = lambda: None) -> None:
        """Raises InvalidInput, ConnectionLost. What cannot be sent now goes out on the next socket, if there is one.

        `on_leaving` is called when nothing is waited for any more, and may raise: then it is not sent.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("this gate was entered in another event loop; it is used there alone")
        try:
            frame = codec.encode(message)
        except ProtocolViolation as error:
            raise InvalidInput(error.message) from error
        if isinstance(message, wire.Text):
            await self._has_room.wait()
        if self._loss is not None:
            raise self._loss
        on_leaving()
        if not self._is_resumable:
            try:
                await self._socket.send(frame)
            except ConnectionClosed as error:
                raise self._describe_loss() from error
        elif isinstance(message, wire.UNCOUNTED_OF_CLIENT):
            await self._send_now(message)
        else:
            self._sent.keep(frame)
            self._note_room()
            await self._send_unwritten()

    async def _send_unwritten(self) -> None:
        """In order, beside other senders: a frame is with the socket before anything is waited for."""
        while self.is_up and (frame := self._sent.take_unwritten()) is not None:
            try:
                await self._socket.send(frame)
            except ConnectionClosed:
                return  # it is sent again on the next one

    async def _send_now(self, message: wire.Ack | wire.SessionMessage) -> None:
        """Or never."""
        if not self.is_up:
            return
        try:
            await self._socket.send(codec.encode(message))
        except ConnectionClosed:
            return

    def _note_room(self) -> None:
        if self._loss is not None or self._sent.num_kept_bytes < _MAX_UNACKNOWLEDGED_BYTES:
            self._has_room.set()
        else:
            self._has_room.clear()

    def _run_errand(self, errand: Any) -> None:
        """Without waiting: the reader must go on reading."""
        task: asyncio.Task[None] = asyncio.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    # --- receiving ----------------------------------------------------------------------------------------

    async def receive(self) -> wire.ServerMessage | AudioMessage:
        """Raises ConnectionLost, when it is over for good."""
        while True:
            try:
                raw = await self._socket.recv()
                message = _read(raw)
            except ConnectionClosed:
                if not await self._comes_back():
                    raise self._end(self._describe_loss()) from None
                continue
            except ProtocolViolation as violation:
                reason = f"the server sent what this client cannot read: {violation.message}"
                self._run_errand(self._close_socket(self._socket, CloseCode.INVALID_DATA))
                raise self._end(ConnectionLost(reason)) from violation
            if isinstance(message, wire.Error) and message.context is UNSET:
                self._last_words = f"{message.code}: {message.message}"
            if isinstance(message, wire.Ack):
                self._sent.acknowledge(min(message.received, self._sent.num_written))
                self._note_room()
                continue
            if not isinstance(message, wire.UNCOUNTED_OF_SERVER):
                self._note_received(len(raw))
            if message is not None:
                return message

    def _note_received(self, num_bytes: int) -> None:
        """A message that a server counts, of those that it may have to send again."""
        if not self._is_resumable:
            return
        self._received.note(num_bytes)
        if self._received.is_ack_due:
            self._received.note_acknowledged()
            self._run_errand(self._send_now(wire.Ack(self._received.num_messages)))

    def _end(self, loss: ConnectionLost) -> ConnectionLost:
        self._loss = loss
        self.is_up = False
        self._note_room()
        return loss

    def _describe_loss(self) -> ConnectionLost:
        code, reason = self._socket.close_code, self._socket.close_reason
        details = [f"close code {code}"] if code is not None else ["no close frame"]
        details += [text for text in (reason, self._last_words) if text]
        return ConnectionLost(f"the connection to the gateway was lost ({'; '.join(details)})")

    # --- another socket -----------------------------------------------------------------------------------

    async def _comes_back(self) -> bool:
        """The socket has closed; True once the session is on another."""
        word = self._socket.protocol.close_rcvd or self._socket.protocol.close_sent
        is_dropped = means_only_the_socket(None if word is None else word.code)
        if self._backoff is None or self._is_closing or not (self._is_resumable and is_dropped and self.is_needed()):
            return False
        self.is_up = False
        log.info("the connection dropped; session %s is to be resumed", self.ready.session)
        try:
            async with asyncio.timeout(self.ready.limits.resume_seconds) as self._patience:
                is_back = await self._come_back(self._backoff)
        except TimeoutError:
            is_back = False
        finally:
            self._patience = None
        log.info("session %s is %s", self.ready.session, "resumed" if is_back else "lost")
        return is_back

    async def _come_back(self, backoff: Backoff) -> bool:
        """False where it is in vain; for how long it may take is the caller's."""
        retry_after_ms = None
        for retry in itertools.count():
            await asyncio.sleep(backoff.delay_s(retry, random.random(), retry_after_ms))
            try:
                socket, _ = await dial(resuming_url(self._url, self.ready.session), self._options)
            except ConnectFailed as error:
                if not error.is_transient:
                    self._last_words = str(error)
                    return False
                retry_after_ms = error.retry_after_ms
                continue
            except InvalidInput as error:  # a file that was there at the first dial
                self._last_words = str(error)
                return False
            try:
                async with asyncio.timeout(self._options.connect_timeout_s):
                    num_received = await self._ask(socket)
            except (ConnectionClosed, TimeoutError):
                socket.transport.abort()
                continue
            except ProtocolViolation as violation:
                socket.transport.abort()
                self._last_words = f"the server's answer cannot be read: {violation.message}"
                return False
            except BaseException:
                socket.transport.abort()
                raise
            if num_received is None or self._is_closing:  # `close` knows of the old socket alone
                self._run_errand(self._close_socket(socket))
                return False
            self._go_on(socket, num_received)
            return True
        raise AssertionError("counting has no end")

    async def _ask(self, socket: ClientConnection) -> int | None:
        """How many of our messages came; None: we are refused."""
        resume = wire.Resume(self.ready.session, self.ready.token, self._received.num_messages)
        await socket.send(codec.encode(resume))
        while not isinstance(answer := _read(await socket.recv()), wire.Resumed | wire.Error):
            pass  # whatever the new socket is told besides
        if isinstance(answer, wire.Error):
            self._last_words = f"{answer.code}: {answer.message}"
        elif self._sent.has_all_behind(answer.received):
            return answer.received
        else:
            self._last_words = f"the server has {answer.received} messages of {self._sent.num_frames}"
        return None

    def _go_on(self, socket: ClientConnection, num_received: int) -> None:
        self._socket = socket
        self._sent.rewind(num_received)
        self._received.note_acknowledged()
        self._note_room()
        self.is_up = True
        self.on_resumed()
        self._run_errand(self._send_unwritten())


def _read(raw: str | bytes) -> wire.ServerMessage | AudioMessage | None:
    """None: a newer server's, of a kind that is not known here."""
    return audio_message.unpack(raw) if isinstance(raw, bytes) else codec.read_server(raw)
