"""The server: listens, warms the engine up, lets sockets in, drains, exits. Owns every long-lived task.

GatewayError   the server cannot run; the message says why and what to do

The listener opens before the engine is loaded and closes last, so that /healthz and /readyz always answer.
"""

import asyncio
import contextlib
import dataclasses
import errno
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

import uvloop
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from voicegate import __version__
from voicegate.engine.interface import Engine, EngineError, EngineInfo, EngineStopped
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server import http
from voicegate.gateway.server.bounded_socket import (
    CLOSE_TIMEOUT_S,
    MAX_QUEUED_FRAMES,
    WRITE_LIMIT_BYTES,
    BoundedSocket,
)
from voicegate.gateway.server.connection import Connection
from voicegate.gateway.server.dispatch import Dispatcher
from voicegate.gateway.server.peers import client_address, owner_of, parse_address
from voicegate.gateway.session.inflow import Inflow
from voicegate.gateway.session.opening import SessionLimits
from voicegate.gateway.session.quota import Owner, QuotaLimits, Quotas
from voicegate.gateway.session.stall import StallWatch
from voicegate.protocol.messages import STREAM_PATH, SUBPROTOCOL

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
# Kept of the drain time, as far as there is that much: for closing handshakes, and for what is left of listening.
_CLOSING_S: Final = 2.0
_LAST_WAIT_S: Final = 0.5
_PING_S: Final = 20.0
# Time for which a socket may send more than its allowance and be read more slowly, before it is closed.
_FLOOD_PATIENCE_S: Final = 10.0

log = get_logger(__name__)


class GatewayError(Exception):
    pass


class Phase(Enum):
    """The value is what /readyz says; None: ready."""

    WARMING_UP = "warming up"
    READY = None
    DRAINING = "draining: this server is going away"
    FAILED = "the engine has stopped"


class Gateway:
    def __init__(self, config: GatewayConfig, engine: Engine) -> None:
        self._config = config
        self._engine = engine
        self._dispatcher = Dispatcher(engine)
        self._limits = SessionLimits(
            contexts=config.contexts_per_socket,
            text_bytes=config.text_bytes,
            context_text_bytes=config.context_text_bytes,
            context_idle_s=config.context_idle_s,
            context_life_s=config.context_life_s,
            messages_per_s=config.messages_per_s,
        )
        self._quotas = Quotas(
            QuotaLimits(
                contexts=config.max_contexts,
                contexts_per_owner=config.contexts_per_address,
                utterances_per_owner=config.utterances_per_address,
            )
        )
        self._phase = Phase.WARMING_UP
        self._info: EngineInfo | None = None
        self._connections: set[Connection] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self.url = ""  # of the stream, once it listens
        self.listening = asyncio.Event()
        self.settled = asyncio.Event()  # ready, or never going to be
        self.failure: str | None = None  # why it ended other than by being told to

    @property
    def is_ready(self) -> bool:
        return self._phase is Phase.READY

    async def run(self) -> int:
        """Serve until SIGTERM or SIGINT; a second SIGINT kills. Returns the exit status."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()

        def interrupt() -> None:
            stop.set()
            # From here on the kernel's own answer to SIGINT: exit now, whatever this process is doing.
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, signal.SIG_DFL)

        loop.add_signal_handler(signal.SIGINT, interrupt)
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        try:
            return await self.serve_until(stop)
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
            loop.remove_signal_handler(signal.SIGINT)

    async def serve_until(self, stop: asyncio.Event) -> int:
        """Returns the exit status after `stop` and the drain, or when the engine died. Raises GatewayError."""
        try:
            return await self._serve_until(stop)
        finally:
            self.settled.set()

    async def _serve_until(self, stop: asyncio.Event) -> int:
        server = await self._listen()
        try:
            async with asyncio.TaskGroup() as tasks:
                engine = tasks.create_task(self._run_engine())
                stopping = tasks.create_task(stop.wait())
                await asyncio.wait({engine, stopping}, return_when=asyncio.FIRST_COMPLETED)
                self.failure = engine.result() if engine.done() else None
                await (self._drain() if self.failure is None else self._tell_failure())
                stopping.cancel()
                engine.cancel()
        finally:
            await self._close(server)
        log.info("stopped", failure=self.failure)
        return EXIT_OK if self.failure is None else EXIT_FAILED

    # --- start --------------------------------------------------------------------------------------------

    async def _listen(self) -> Server:
        host, port = self._config.host, self._config.port
        try:
            server = await serve(
                self._handle_socket,
                host,
                port,
                process_request=self._respond,
                select_subprotocol=_select_subprotocol,
                server_header=f"voicegate/{__version__}",
                compression=None,
                ping_interval=_PING_S,
                ping_timeout=_PING_S,
                close_timeout=CLOSE_TIMEOUT_S,
                max_size=self._config.max_message_bytes,
                max_queue=MAX_QUEUED_FRAMES,
                write_limit=WRITE_LIMIT_BYTES,
                create_connection=self._new_socket,  # type: ignore[arg-type]  # a factory does as well as a class
            )
        except OSError as error:
            raise GatewayError(_why_not_listening(error, host, port)) from error
        bound_host, bound_port = server.sockets[0].getsockname()[:2]
        shown_host = f"[{bound_host}]" if ":" in bound_host else bound_host
        self.url = f"ws://{shown_host}:{bound_port}{STREAM_PATH}"
        self.listening.set()
        log.info("listening", url=self.url)
        return server

    async def _run_engine(self) -> str:
        """Returns why the engine runs no more; `serve_until` cancels it otherwise."""
        try:
            await self._engine.start()
            self._info = self._engine.info
            self._phase = Phase.READY
            self.settled.set()
            log.info("ready", model=self._info.model, voices=len(self._info.voices))
            await self._dispatcher.run()
        except EngineError as error:
            log.error("engine failed", reason=str(error))
            return str(error)
        except Exception as error:  # the root of the engine's task: the server ends with it
            log.exception("engine failed")
            return f"{type(error).__name__}: {error}"
        log.error("engine died")
        return "the engine died"

    @property
    def _info_now(self) -> EngineInfo | None:
        """With the voices that there are now; as it last was, of an engine that has stopped."""
        if self._info is not None:
            with contextlib.suppress(EngineStopped):
                self._info = self._engine.info
        return self._info

    # --- sockets ------------------------------------------------------------------------------------------

    def _respond(self, _connection: ServerConnection, request: Request) -> Response | None:
        is_full = len(self._connections) >= self._config.max_sockets
        unready_reason = self._phase.value or self._engine.unready_reason
        return http.respond(request, http.Status(unready_reason, is_full, self._info_now))

    def _new_socket(self, *args: Any, **options: Any) -> BoundedSocket:
        inflow = Inflow(self._config.messages_per_s, patience_s=_FLOOD_PATIENCE_S)
        return BoundedSocket(*args, inflow=inflow, stall=StallWatch(self._config.write_stall_s), **options)

    async def _handle_socket(self, websocket: ServerConnection) -> None:
        info = self._info_now
        assert info is not None, "no socket is let in before the engine is ready"
        assert isinstance(websocket, BoundedSocket)
        connection = Connection(
            websocket,
            engine=self._engine,
            info=info,
            dispatcher=self._dispatcher,
            limits=self._limits,
            quotas=self._quotas,
            owner=self._owner_of(websocket),
        )
        self._connections.add(connection)
        self._is_empty.clear()
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            if not self._connections:
                self._is_empty.set()

    def _owner_of(self, websocket: ServerConnection) -> Owner:
        assert websocket.request is not None, "it has shaken hands"
        forwarded_for = websocket.request.headers.get_all("X-Forwarded-For")
        peer = parse_address(websocket.remote_address[0])
        return owner_of(client_address(peer, forwarded_for, self._config.trusted_networks))

    # --- end ----------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Let contexts finish for most of the drain time, end the others, and close."""
        self._phase = Phase.DRAINING
        finishing_s = max(0.0, self._config.drain_s - _CLOSING_S - _LAST_WAIT_S)
        log.info("draining", sockets=len(self._connections), finishing_s=finishing_s)
        for connection in list(self._connections):
            connection.drain(deadline_ms=round(finishing_s * 1000))
        if not await self._wait_until_empty(finishing_s):
            num_unfinished = sum(connection.num_contexts for connection in self._connections)
            if num_unfinished:
                log.warning("drain time is over", unfinished_contexts=num_unfinished)
            for connection in list(self._connections):
                connection.drain_deadline()
            await self._wait_until_empty(min(_CLOSING_S, self._config.drain_s))

    async def _tell_failure(self) -> None:
        self._phase = Phase.FAILED
        for connection in list(self._connections):
            connection.engine_stopped()
        await self._wait_until_empty(_CLOSING_S)

    async def _wait_until_empty(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_empty.wait()
        except TimeoutError:
            return False
        return True

    async def _close(self, server: Server) -> None:
        for connection in list(self._connections):
            connection.abort()
        server.close()
        # A peer that connected and sent no request would keep it waiting for the whole handshake timeout.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WAIT_S):
                await server.wait_closed()
        await self._engine.close()


def run_gateway(
    config: GatewayConfig,
    engine: Engine,
    *,
    on_ready: Callable[[str, EngineInfo], None] | None = None,
    on_failure: Callable[[str], None] | None = None,
) -> int:
    """Serve on uvloop until a signal; returns the exit status.

    `on_ready` is told the url and what the engine is; `on_failure` why it could not listen or did not last, which is
    an error in the log where nobody asks.
    """
    log.info("starting", version=__version__, **_shown(config))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            gateway = Gateway(config, engine)
            status = runner.run(_run_announced(gateway, engine, on_ready))
        failure = gateway.failure
    except GatewayError as error:
        status, failure = EXIT_FAILED, str(error)
        if on_failure is None:
            log.error("cannot start", reason=failure)
    if failure is not None and on_failure is not None:
        on_failure(failure)
    return status


async def _run_announced(gateway: Gateway, engine: Engine, on_ready: Callable[[str, EngineInfo], None] | None) -> int:
    async def announce() -> None:
        await gateway.settled.wait()
        if gateway.is_ready and on_ready is not None:
            on_ready(gateway.url, engine.info)

    announcing = asyncio.create_task(announce())
    try:
        return await gateway.run()
    finally:
        announcing.cancel()


@contextlib.asynccontextmanager
async def running_gateway(config: GatewayConfig, engine: Engine) -> AsyncIterator[str]:
    """A gateway inside this process, on a free loopback port and without signal handlers; yields its URL when ready.

    On exit it waits for nothing: contexts that still run are ended. Raises GatewayError, also for an engine that
    does not start.
    """
    gateway = Gateway(dataclasses.replace(config, host="127.0.0.1", port=0, drain_s=_CLOSING_S), engine)
    stop = asyncio.Event()
    serving = asyncio.create_task(gateway.serve_until(stop))
    try:
        await gateway.settled.wait()
        if gateway.is_ready:
            yield gateway.url
            return
    finally:
        stop.set()
        await serving
    raise GatewayError(gateway.failure)


def _select_subprotocol(_connection: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Offered, not required: a client that names none, or only others, is let in too."""
    return Subprotocol(SUBPROTOCOL) if SUBPROTOCOL in offered else None


def _shown(config: GatewayConfig) -> dict[str, object]:
    return {
        name: str(value) if isinstance(value, Path) else value for name, value in dataclasses.asdict(config).items()
    }


def _why_not_listening(error: OSError, host: str, port: int) -> str:
    where = f"cannot listen on {host}:{port}"
    match error.errno:
        case errno.EADDRINUSE:
            return f"{where}: the port is taken. Stop the process that has it, or choose another port"
        case errno.EACCES:
            return f"{where}: not permitted. Choose a port above 1023"
        case errno.EADDRNOTAVAIL:
            return f"{where}: no interface of this machine has that address. Choose another host"
        case _:
            return f"{where}: {error.strerror or error}. Check host and port"
