"""GET /metrics on a port of its own, in a thread of its own: it answers also while the event loop does not.

Who reaches it needs no key, so it listens where operators say (ADR 0023).
"""

import socket
import sys
import threading
from collections.abc import Callable, Iterable
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from voicegate.engine.interface import EngineStats
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.entrance.sites import Sites, is_loopback
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.metrics.meters import Meters
from voicegate.gateway.server.metrics.states import States
from voicegate.gateway.server.status import Status

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

# For a request to arrive in: each has a thread.
_TIMEOUT_S: Final = 10.0
# Between two looks at whether to end. Lower wakes it more often for nothing.
_END_POLL_S: Final = 0.1

log = get_logger(__name__)


class _Handler(WSGIRequestHandler):
    timeout = _TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(ThreadingWSGIServer):
    address_family = socket.AF_INET

    def server_bind(self) -> None:
        """HTTPServer's own asks the name servers what this machine is called, and a start would wait for them."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """socketserver's own writes a traceback to stderr, past the log, for everybody who hangs up or says nothing."""
        if not isinstance(sys.exception(), OSError):
            log.exception("a request for metrics failed")


class _ServerOfV6(_Server):
    address_family = socket.AF_INET6


def _known_by_name(app: "WSGIApplication", sites: Sites) -> "WSGIApplication":
    """Not for a page whose own name is made to resolve to this server."""

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        name = environ.get("HTTP_HOST")
        if name is None or sites.refusal_to_read([], [name]) is None:
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"metrics on loopback are told to localhost and addresses alone\n"]

    return answer


class Exporter:
    """`meters` count from the start on, whether or not anybody asks."""

    def __init__(
        self, status: Callable[[], Status], stats: Callable[[], EngineStats], *, tags: Iterable[str] = ()
    ) -> None:
        """`tags`: of clients that are told apart."""
        # Process-wide: else a second series for each counter, which no reader asks for.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.meters = Meters(self.registry, tags)
        self.registry.register(States(status, stats))
        ProcessCollector(registry=self.registry)
        self._server: ThreadingWSGIServer | None = None
        self._thread: threading.Thread | None = None

    def open(self, host: str, port: int) -> str:
        """Returns the URL. Raises GatewayError."""
        is_v6 = ":" in host
        try:
            server = make_server(
                host,
                port,
                _known_by_name(make_wsgi_app(self.registry), Sites(takes_other_names=not is_loopback(host))),
                _ServerOfV6 if is_v6 else _Server,
                handler_class=_Handler,
            )
        except OSError as error:
            raise GatewayError(
                f"cannot listen on {host}:{port} for /metrics: {error.strerror}; choose another --metrics-port"
            ) from error
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(_END_POLL_S,), name="metrics", daemon=True)
        self._thread.start()
        return f"http://{f'[{host}]' if is_v6 else host}:{server.server_port}/metrics"

    def close(self) -> None:
        """Waits for no request."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
