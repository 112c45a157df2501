"""The port for Wyoming: reads and writes events, and gives each connection a Conversation, as every socket has one.

What events mean is the dialect's to know. There are no keys in this protocol, and no TLS.
"""

import asyncio
import contextlib
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import orjson
from wyoming.error import Error
from wyoming.event import async_read_event, async_write_event

from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.conversations.conversation import Conversation, new_session_id
from voicegate.gateway.server.conversations.translation import DialectTranslator, translator_of
from voicegate.gateway.server.entrance.accepting import open_port, stop_accepting
from voicegate.gateway.server.entrance.peers import owner_of, parse_address
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.http.stage import Stage
from voicegate.gateway.server.peer_watch import WRITE_LIMIT_BYTES, keep_kernel_buffer_small
from voicegate.gateway.server.seldom import SeldomLog
from voicegate.gateway.session.actions import Close
from voicegate.gateway.session.inflow import Inflow
from voicegate.gateway.session.quota import Holding, Owner, Quotas
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.dialects.dialect import Effect, Hangup, Reply
from voicegate.protocol.dialects.wyoming import Wyoming
from voicegate.protocol.errors import ErrorCode, ProtocolViolation
from voicegate.protocol.messages import ServerMessage

if TYPE_CHECKING:
    from voicegate.gateway.server.announcement import Announcement

# For what was said last to reach a peer that reads, before the connection is cut.
_LAST_WAIT_S: Final = 0.5
# A peer that lost its power says nothing: the kernel asks after that much silence, and again so often.
_KEEPALIVE_S: Final = 20
# Time for which a peer may send more than its allowance and be read more slowly, before it is cut.
_FLOOD_PATIENCE_S: Final = 10.0

log = get_logger(__name__)


class _BoundedReader(asyncio.StreamReader):
    """Raises ProtocolViolation for what is too long; the library believes any length that a peer names."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(limit=max_bytes)
        self._max_bytes = max_bytes
        self.num_bytes = 0  # read so far

    async def readline(self) -> bytes:
        try:
            line = await super().readline()
        except ValueError as error:
            raise self._too_long() from error
        self.num_bytes += len(line)
        return line

    async def readexactly(self, n: int) -> bytes:
        if n > self._max_bytes:
            raise self._too_long()
        self.num_bytes += n
        return await super().readexactly(n)

    def _too_long(self) -> ProtocolViolation:
        return ProtocolViolation(
            ErrorCode.BAD_MESSAGE, f"a line, the data and the payload of an event have at most {self._max_bytes} bytes"
        )


async def _announced(name: str, host: str, port: int) -> "Announcement":
    """Raises GatewayError, also where the extra is not installed."""
    try:
        from voicegate.gateway.server.announcement import Announcement  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise GatewayError(
            f"{error.name} is not installed, and --wyoming-zeroconf needs it: pip install zeroconf"
        ) from error
    return await Announcement.made(name, host, port)


class WyomingServer:
    def __init__(self, config: GatewayConfig, quotas: Quotas, stage: Stage) -> None:
        self._config = config
        self._quotas = quotas
        self._stage = stage
        self._server: asyncio.Server | None = None
        self._announcement: Announcement | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._seldom = SeldomLog(log)

    async def open(self, host: str, port: int) -> int:
        """Returns the port. Raises GatewayError."""

        def receive() -> asyncio.Protocol:
            return asyncio.StreamReaderProtocol(_BoundedReader(self._config.max_message_bytes), self._receive)

        self._server, bound_port = await open_port(receive, host, port, purpose="Wyoming", setting="--wyoming-port")
        if self._config.wyoming_zeroconf is not None:
            self._announcement = await _announced(self._config.wyoming_zeroconf, host, bound_port)
        return bound_port

    async def close(self) -> None:
        """The guests are gone already, or cut."""
        if self._announcement is not None:
            await self._announcement.end()
        if self._server is not None:
            await stop_accepting(self._server.sockets)
            self._server.close()
            if self._serving:
                await asyncio.wait(self._serving, timeout=_LAST_WAIT_S)

    def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, _BoundedReader), "it was made above"
        serving = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, reader: _BoundedReader, writer: asyncio.StreamWriter) -> None:
        name = writer.get_extra_info("peername")
        owner = owner_of(parse_address(name[0] if name else "0.0.0.0"))
        try:
            if (refusal := self._admit(owner)) is not None:
                self._seldom.warning("a socket is refused", reason=refusal)
                _check_open(writer.transport)
                await async_write_event(Error(text=refusal, code=ErrorCode.OVERLOADED.value).event(), writer)
                return
            try:
                await self._seat(reader, writer, owner)
            finally:
                self._quotas.give_back(owner, Holding.SOCKET)
        except ConnectionError:
            pass  # gone before it was told
        except Exception:
            log.exception("socket failed")
        finally:
            await _part(writer)

    def _admit(self, owner: Owner) -> str | None:
        """Why not; else its place is taken."""
        refusal = self._stage.status().refusal
        if refusal is not None:
            return refusal
        excess = self._quotas.take(owner, Holding.SOCKET)
        return None if excess is None else str(excess)

    async def _seat(self, reader: _BoundedReader, writer: asyncio.StreamWriter, owner: Owner) -> None:
        stage = self._stage
        info = stage.status().info
        assert info is not None, "nobody is let in before the engine is ready"
        services = replace(stage.services, limits=stage.services.limits.of_a_dialect(None))
        session_id = new_session_id(self._config.instance)
        conversation = Conversation(services, session_id=session_id, info=info, owner=owner)
        translator = translator_of(Wyoming, conversation, stage.voice_names, lambda: stage.status().info)
        services.meters.note_socket()
        connection = _Connection(reader, writer, conversation, translator, self._config)
        with stage.guests.present(connection):
            await connection.run()


class _Connection:
    def __init__(
        self,
        reader: _BoundedReader,
        writer: asyncio.StreamWriter,
        conversation: Conversation,
        translator: DialectTranslator,
        config: GatewayConfig,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.conversation = conversation
        self._translator = translator
        self._inflow = Inflow(config.messages_per_s, patience_s=_FLOOD_PATIENCE_S)
        self._write_stall_s = config.write_stall_s
        self._transport = writer.transport
        self._transport.set_write_buffer_limits(high=WRITE_LIMIT_BYTES)
        keep_kernel_buffer_small(self._transport)
        _keep_alive(self._transport)

    def abort(self) -> None:
        self._transport.abort()

    async def run(self) -> None:
        """Returns when the peer has gone, or is to go; what it asked for is cancelled then."""
        log = self.conversation.log
        log.info("socket opened", peer="wyoming", owner=self.conversation.owner.address)
        reading = writing = None
        try:
            self.conversation.greet()
            await self._write(await self.conversation.next_output())  # `describe` is answered out of the greeting
            reading = asyncio.create_task(self._read_all())
            writing = asyncio.create_task(self._write_all())
            ends: set[asyncio.Future[Any]] = {reading, writing, self.conversation.verdict}
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except ConnectionError:
            pass
        except Exception:
            log.exception("socket failed")
            self.conversation.break_off()
        finally:
            self.conversation.close()
            tasks = [task for task in (reading, writing) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            log.info("socket closed")

    # --- reading ------------------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self.conversation.wait_for_room()
            before = self._reader.num_bytes
            try:
                frame = await self._next_frame()
            except ProtocolViolation as violation:
                self.conversation.violation(violation)
                await asyncio.Future()  # the writer ends it, once that is said
            if frame is None:
                return
            for effect in self._translator.hear(frame):
                self._perform(effect)
            # At least one turn of the loop: a peer may send thousands of events at once.
            await asyncio.sleep(self._inflow.take(1, self._reader.num_bytes - before, loop.time()))
            if self._inflow.is_flood(loop.time()):
                self.conversation.flooded()

    async def _next_frame(self) -> str | None:
        """None: the peer has gone. Raises ProtocolViolation."""
        try:
            event = await async_read_event(self._reader)
            if event is not None:
                return orjson.dumps({"type": event.type, "data": event.data}).decode()
        except asyncio.IncompleteReadError:
            return None
        except (AttributeError, KeyError, TypeError, RecursionError) as error:
            # The library takes what is JSON for an event, whatever its fields are.
            raise ProtocolViolation(ErrorCode.BAD_MESSAGE, "this is no Wyoming event") from error
        if self._reader.at_eof():
            return None
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, "this is no Wyoming event: not JSON")

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Reply():
                self.conversation.say(effect)
            case Hangup(code=code, reason=reason):
                self.conversation.say(Close(code, reason))
            case wire.Resume() | wire.Ack():
                pass  # of the native protocol's sockets alone
            case _:
                self.conversation.receive(effect)

    # --- writing ------------------------------------------------------------------------------------------

    async def _write_all(self) -> None:
        while not isinstance(item := await self.conversation.next_output(), Close):
            await self._write(item)

    async def _write(self, item: ServerMessage | AudioMessage | Reply | Close) -> None:
        if isinstance(item, Close):
            return
        effects = [item] if isinstance(item, Reply) else await self._translator.word(item)
        for effect in effects:  # first, as in the WebSocket's connection: the dialect takes them for done
            if not isinstance(effect, Reply):
                self._perform(effect)
        for effect in effects:
            if isinstance(effect, Reply):
                await self._send(effect.frame)

    async def _send(self, frame: str | bytes) -> None:
        assert isinstance(frame, bytes), "events are written whole"
        _check_open(self._transport)
        self._writer.write(frame)
        self.conversation.hold_up(True)
        try:
            async with asyncio.timeout(self._write_stall_s):
                await self._writer.drain()
        except TimeoutError:
            self.conversation.give_up()
        self.conversation.hold_up(False)


def _check_open(transport: asyncio.BaseTransport) -> None:
    """Raises ConnectionError; uvloop's own for a write to a closed transport is none."""
    if transport.is_closing():
        raise ConnectionResetError("the peer has gone")


async def _part(writer: asyncio.StreamWriter) -> None:
    """A peer that reads hears what was said last; another does not hold its place."""
    writer.close()
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(_LAST_WAIT_S):
            await writer.wait_closed()
    writer.transport.abort()


def _keep_alive(transport: asyncio.BaseTransport) -> None:
    raw_socket = transport.get_extra_info("socket")
    with contextlib.suppress(AttributeError, OSError):  # macOS has another name for it; the peer may be gone already
        raw_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        raw_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
        raw_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_S)
