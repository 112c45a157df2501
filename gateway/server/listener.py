"""The open port: who may connect, what becomes a socket, and what is a request of another kind. No contexts here."""

import asyncio
import contextlib
import errno
import functools
import time
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from ipaddress import IPv4Address
from typing import Final

from websockets.http11 import Request, Response

from voicegate.gateway.auth.access import Unauthorized
from voicegate.gateway.auth.keyring import Key
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.conversations.conversation import new_session_id
from voicegate.gateway.server.entrance.accepting import listen, stop_accepting
from voicegate.gateway.server.entrance.callers import caller_of
from voicegate.gateway.server.entrance.descriptors import SPARE_CONNECTIONS
from voicegate.gateway.server.entrance.door import Door
from voicegate.gateway.server.entrance.peers import IPAddress, client_address, owner_of, parse_address
from voicegate.gateway.server.entrance.reception import Asked, Reception
from voicegate.gateway.server.entrance.tls import Certificate, TlsHandshake
from voicegate.gateway.server.entrance.unreadable import SERVER
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.http.app import build_app
from voicegate.gateway.server.http.connection import HttpConnection, HttpServer
from voicegate.gateway.server.http.stage import Stage
from voicegate.gateway.server.http.vendors import naming_headers
from voicegate.gateway.server.http.visitor import Visitor
from voicegate.gateway.server.seldom import SeldomLog
from voicegate.gateway.server.websocket import upgrades
from voicegate.gateway.server.websocket.bounded_socket import BoundedSocket
from voicegate.gateway.session.inflow import Inflow
from voicegate.gateway.session.quota import Excess, Owner, Quotas
from voicegate.gateway.session.stall import StallWatch
from voicegate.protocol.errors import CloseCode
from voicegate.protocol.messages import STREAM_PATH

_PING_S: Final = 20.0
# Connections that the kernel holds for a busy event loop. Lower drops those of a crowd, whose clients try again after
# seconds; higher makes so many wait for their turn, and takes them in one.
_BACKLOG: Final = 512
# Time for which a socket may send more than its allowance and be read more slowly, before it is closed.
_FLOOD_PATIENCE_S: Final = 10.0
# A peer that connected and sent no request would keep a close waiting for the whole handshake timeout.
_LAST_WAIT_S: Final = 0.5
_NOWHERE: Final = IPv4Address(0)

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
        # As they came: of a peer that has reset the connection meanwhile no one can tell.
        self._peers: dict[asyncio.Transport, IPAddress] = {}
        self._certificate = certificate
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()  # of each socket that was let in
        self._all_left: asyncio.Event | None = None  # once it closes
        self._seldom = SeldomLog(log)

    async def open(self) -> str:
        """Returns the stream's URL. Raises GatewayError."""
        host, port = self._config.host, self._config.port
        try:
            self._server = await listen(self._receive, host, port, backlog=_BACKLOG)
        except OSError as error:
            raise GatewayError(_why_not_listening(error, host, port)) from error
        bound_host, bound_port = self._server.sockets[0].getsockname()[:2]
        shown_host = f"[{bound_host}]" if ":" in bound_host else bound_host
        scheme = "ws" if self._certificate is None else "wss"
        return f"{scheme}://{shown_host}:{bound_port}{STREAM_PATH}"

    @property
    def certificate(self) -> Certificate | None:
        """The one in use; None: no TLS."""
        return self._certificate

    async def close(self) -> None:
        """Cuts all that is still connected."""
        if self._server is None:
            return
        await stop_accepting(self._server.sockets)
        self._server.close()
        self._all_left = asyncio.Event()
        for transport in self._door.connections:
            transport.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WAIT_S):
                if self._door.connections:
                    await self._all_left.wait()
                if self._serving:
                    await asyncio.wait(self._serving)
                await self._server.wait_closed()

    # --- connections --------------------------------------------------------------------------------------

    def _receive(self) -> asyncio.Protocol:
        first = Reception(successor=self._succeed, on_arrival=self._arrive, on_departure=self._leave)
        if self._certificate is None:
            return first
        return TlsHandshake(
            self._certificate.context,
            successor=first,
            on_arrival=self._arrive,
            on_departure=self._leave,
            on_failure=lambda reason: self._warn("a TLS handshake failed", reason=reason),
        )

    def _succeed(self, transport: asyncio.Transport, asked: Asked | None) -> asyncio.Protocol:
        leave = functools.partial(self._leave, transport)
        if asked is None or not upgrades.is_upgrade(asked.request):
            return HttpConnection(self._http, self._visitor(transport), on_departure=leave)
        return BoundedSocket(
            asked,
            answer=self._answer,
            on_open=self._begin,
            on_departure=leave,
            inflow=Inflow(self._config.messages_per_s, patience_s=_FLOOD_PATIENCE_S),
            stall=StallWatch(self._config.write_stall_s),
            ping_s=_PING_S,
            max_message_bytes=self._config.max_message_bytes,
        )

    def _arrive(self, transport: asyncio.Transport) -> None:
        name = transport.get_extra_info("peername")
        peer = self._peers[transport] = _NOWHERE if name is None else parse_address(name[0])
        oldest = self._door.arrive(transport, owner_of(peer).address)
        if oldest is not None:
            self._warn("too many connections without a request, the oldest is cut")
            oldest.abort()

    def _leave(self, transport: asyncio.Transport) -> None:
        self._door.leave(transport)
        self._peers.pop(transport, None)
        if self._all_left is not None and not self._door.connections:
            self._all_left.set()

    def _answer(self, websocket: BoundedSocket, request: Request) -> Response:
        try:
            response = self._refuse(websocket, request) or websocket.protocol.accept(request)
        except Exception:
            log.exception("a handshake failed")
            response = websocket.protocol.reject(
                HTTPStatus.INTERNAL_SERVER_ERROR, "the server failed; its log says how\n"
            )
        response.headers["Server"] = SERVER
        is_in = response.status_code == HTTPStatus.SWITCHING_PROTOCOLS
        refusal = None if is_in else upgrades.reason_of(response)
        path = request.path.partition("?")[0]
        response.headers.update(naming_headers(path, websocket.session_id, refusal, headers=request.headers))
        return response

    def _refuse(self, websocket: BoundedSocket, request: Request) -> Response | None:
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
            response = None if excess is None else upgrades.too_many_sockets(request, excess)
        if response is not None:
            self._meters.note_refused_upgrade(response.status_code)
            self._warn("a socket is refused", status=response.status_code, reason=upgrades.reason_of(response))
        return response

    def _begin(self, websocket: BoundedSocket) -> None:
        serving = asyncio.get_running_loop().create_task(self._serve(websocket))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, websocket: BoundedSocket) -> None:
        try:
            await self._serve_socket(websocket)
        except Exception:
            log.exception("socket failed")
            await websocket.close(CloseCode.OUR_FAULT)
        finally:
            websocket.abort()

    def _visitor(self, transport: asyncio.Transport) -> Visitor:
        def admit(forwarded_for: Sequence[str], key: Key | None) -> Owner | Excess:
            owner = self._owner_of(transport, forwarded_for, key)
            excess = self._door.admit(transport, owner)
            if excess is not None:
                self._warn("a request is refused", reason=str(excess))
            return owner if excess is None else excess

        return Visitor(admit=admit, abort=transport.abort)

    def _owner_of(self, transport: asyncio.Transport, forwarded_for: Sequence[str], key: Key | None) -> Owner:
        peer = self._peers.get(transport, _NOWHERE)
        return owner_of(client_address(peer, forwarded_for, self._config.trusted_networks), key)

    def _warn(self, event: str, **fields: object) -> None:
        self._seldom.warning(event, sockets=self._door.num_sockets, **fields)


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
