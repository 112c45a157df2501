"""The open port: who may connect, what becomes a socket, and what is a request of another kind. No contexts here."""

import asyncio
import contextlib
import errno
import functools
import time
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any, Final

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from voicegate.gateway.auth.access import Unauthorized
from voicegate.gateway.auth.keyring import Key
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server import upgrades
from voicegate.gateway.server.accepting import stop_accepting
from voicegate.gateway.server.bounded_socket import CLOSE_TIMEOUT_S, MAX_QUEUED_FRAMES, BoundedSocket
from voicegate.gateway.server.callers import KEY_SUBPROTOCOLS, caller_of
from voicegate.gateway.server.conversation import new_session_id
from voicegate.gateway.server.descriptors import SPARE_CONNECTIONS
from voicegate.gateway.server.door import Door
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.http.app import build_app
from voicegate.gateway.server.http.connection import HttpConnection, HttpServer
from voicegate.gateway.server.http.stage import Stage
from voicegate.gateway.server.http.unreadable import SERVER
from voicegate.gateway.server.http.vendors import naming_headers
from voicegate.gateway.server.http.visitor import Visitor
from voicegate.gateway.server.peer_watch import WRITE_LIMIT_BYTES
from voicegate.gateway.server.peers import client_address, owner_of, parse_address
from voicegate.gateway.server.reception import Asked, Reception
from voicegate.gateway.server.seldom import SeldomLog
from voicegate.gateway.server.tls import Certificate, TlsHandshake
from voicegate.gateway.session.inflow import Inflow
from voicegate.gateway.session.quota import Excess, Owner, Quotas
from voicegate.gateway.session.stall import StallWatch
from voicegate.protocol.messages import STREAM_PATH, SUBPROTOCOL

_PING_S: Final = 20.0
# Connections that the kernel holds for a busy event loop. Lower drops those of a crowd, whose clients try again after
# seconds; higher makes so many wait for their turn, and takes them in one.
_BACKLOG: Final = 512
# Time for which a socket may send more than its allowance and be read more slowly, before it is closed.
_FLOOD_PATIENCE_S: Final = 10.0
# A peer that connected and sent no request would keep a close waiting for the whole handshake timeout.
_LAST_WAIT_S: Final = 0.5

log = get_logger(__name__)


class Listener:
    """`serve_socket` has each socket, the app of `stage` every other request; with a certificate all is in TLS."""

    def __init__(
        self,
        config: GatewayConfig,
        quotas: Quotas,
        stage: Stage,
        *,
        certificate: Certificate | None = None,
        serve_socket: Callable[[BoundedSocket], Awaitable[None]],
    ) -> None:
        self._config = config
        self._status = stage.status
        self._sites = stage.sites
        self._access = stage.access
        self._meters = stage.services.meters
        self._serve_socket = serve_socket
        self._http = HttpServer(build_app(stage), write_stall_s=config.write_stall_s)
        self._door: Door[asyncio.Transport] = Door(quotas, num_spare=SPARE_CONNECTIONS)
        self._certificate = certificate
        self._server: Server | None = None
        self._seldom = SeldomLog(log)

    async def open(self) -> str:
        """Returns the stream's URL. Raises GatewayError."""
        host, port = self._config.host, self._config.port
        try:
            self._server = await serve(
                self._handle,
                host,
                port,
                process_request=self._respond,
                process_response=_name,
                select_subprotocol=_select_subprotocol,
                server_header=SERVER,
                compression=None,
                ping_interval=_PING_S,
                ping_timeout=_PING_S,
                close_timeout=CLOSE_TIMEOUT_S,
                max_size=self._config.max_message_bytes,
                max_queue=MAX_QUEUED_FRAMES,
                write_limit=WRITE_LIMIT_BYTES,
                backlog=_BACKLOG,
                create_connection=self._receive,  # type: ignore[arg-type]  # a factory does as well as a class
            )
        except OSError as error:
            raise GatewayError(_why_not_listening(error, host, port)) from error
        bound_host, bound_port = self._server.sockets[0].getsockname()[:2]
        shown_host = f"[{bound_host}]" if ":" in bound_host else bound_host
        scheme = "ws" if self._certificate is None else "wss"
        return f"{scheme}://{shown_host}:{bound_port}{STREAM_PATH}"

    def reload_certificate(self) -> bool:
        """For connections from here on; False where there is none. Raises ConfigError, and then the old one stays."""
        if self._certificate is not None:
            self._certificate.reload()
        return self._certificate is not None

    async def close(self) -> None:
        """What is still connected is cut."""
        if self._server is None:
            return
        await stop_accepting(self._server.sockets)
        self._server.close()
        for transport in self._door.connections:
            transport.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WAIT_S):
                await self._server.wait_closed()

    # --- connections --------------------------------------------------------------------------------------

    def _receive(self, protocol: ServerProtocol, *args: Any, **options: Any) -> asyncio.Protocol:
        """Where the library would make a WebSocket of every connection."""

        def successor(transport: asyncio.Transport, asked: Asked | None) -> asyncio.Protocol:
            leave = functools.partial(self._door.leave, transport)
            if asked is None or not upgrades.is_upgrade(asked.request):
                return HttpConnection(self._http, self._visitor(transport), on_departure=leave)
            return BoundedSocket(
                protocol,
                *args,
                asked=asked,
                inflow=Inflow(self._config.messages_per_s, patience_s=_FLOOD_PATIENCE_S),
                stall=StallWatch(self._config.write_stall_s),
                on_departure=leave,
                **options,
            )

        first: asyncio.Protocol = Reception(successor=successor, on_arrival=self._arrive, on_departure=self._door.leave)
        if self._certificate is not None:
            first = TlsHandshake(
                self._certificate.context,
                successor=first,
                on_arrival=self._arrive,
                on_departure=self._door.leave,
                on_failure=lambda reason: self._warn("a TLS handshake failed", reason=reason),
            )
        first.protocol = protocol  # type: ignore[attr-defined]  # the library looks for it there
        return first

    def _arrive(self, transport: asyncio.Transport) -> None:
        oldest = self._door.arrive(transport)
        if oldest is not None:
            self._warn("too many connections without a request, the oldest is cut")
            oldest.abort()

    def _respond(self, websocket: ServerConnection, request: Request) -> Response | None:
        assert isinstance(websocket, BoundedSocket)
        websocket.session_id = new_session_id(self._config.instance)
        websocket.caller = caller_of(request.headers.get_all, request.path)
        key, unauthorized = None, None
        try:
            key = self._access.identify(websocket.caller.keys, time.time())
        except Unauthorized as refusal:
            unauthorized = refusal
        response = upgrades.find_refusal(request, self._status(), self._sites, unauthorized)
        if response is None:
            websocket.owner = self._owner_of(websocket.transport, request.headers.get_all("X-Forwarded-For"), key)
            excess = self._door.admit(websocket.transport, websocket.owner)
            response = None if excess is None else upgrades.too_many_sockets(excess)
        if response is not None:
            self._meters.note_refused_upgrade(response.status_code)
            self._warn("a socket is refused", status=response.status_code, reason=upgrades.reason_of(response))
        return response

    async def _handle(self, websocket: ServerConnection) -> None:
        assert isinstance(websocket, BoundedSocket)
        await self._serve_socket(websocket)

    def _visitor(self, transport: asyncio.Transport) -> Visitor:
        def admit(forwarded_for: Sequence[str], key: Key | None) -> Owner | Excess:
            owner = self._owner_of(transport, forwarded_for, key)
            excess = self._door.admit(transport, owner)
            if excess is not None:
                self._warn("a request is refused", reason=str(excess))
            return owner if excess is None else excess

        return Visitor(admit=admit, abort=transport.abort)

    def _owner_of(self, transport: asyncio.Transport, forwarded_for: Sequence[str], key: Key | None) -> Owner:
        peer = parse_address(transport.get_extra_info("peername")[0])
        return owner_of(client_address(peer, forwarded_for, self._config.trusted_networks), key)

    def _warn(self, event: str, **fields: object) -> None:
        self._seldom.warning(event, sockets=self._door.num_sockets, **fields)


def _name(websocket: ServerConnection, request: Request, response: Response) -> None:
    assert isinstance(websocket, BoundedSocket)
    is_in = response.status_code == HTTPStatus.SWITCHING_PROTOCOLS
    refusal = None if is_in else upgrades.reason_of(response)
    response.headers.update(naming_headers(request.path.partition("?")[0], websocket.session_id, refusal))


def _select_subprotocol(_connection: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Offered, not required: a client that names none, or only others, is let in too.

    A browser hangs up where none that it offers is taken, and a key (of `token, KEY`) is none.
    """
    return next((Subprotocol(name) for name in (SUBPROTOCOL, *KEY_SUBPROTOCOLS) if name in offered), None)


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
