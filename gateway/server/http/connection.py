"""The I/O shell of one HTTP request: uvicorn's protocol, with bounds on what its peer makes it hold and wait for.

It must not know what is asked for.
"""

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from voicegate.gateway.server.http.gatekeeper import SERVER
from voicegate.gateway.server.peer_watch import WRITE_LIMIT_BYTES, PeerWatch, keep_kernel_buffer_small
from voicegate.gateway.server.reception import MAX_HEAD_BYTES
from voicegate.gateway.session.stall import StallWatch


class HttpServer:
    """What all requests share."""

    def __init__(self, app: ASGIApp, *, write_stall_s: float) -> None:
        self.config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            ws="none",
            lifespan="off",
            proxy_headers=False,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        self.config.load()
        self.state = ServerState()
        self.write_stall_s = write_stall_s


class HttpConnection(H11Protocol):
    """`visitor` is what the app is told of it: `request.state.visitor`."""

    def __init__(self, server: HttpServer, visitor: object, *, on_departure: Callable[[], None]) -> None:
        super().__init__(server.config, server.state, {"visitor": visitor}, asyncio.get_running_loop())
        self._write_stall_s = server.write_stall_s
        self._on_departure = on_departure
        self._cutting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=WRITE_LIMIT_BYTES)
        keep_kernel_buffer_small(transport)
        self._watch = PeerWatch(transport, StallWatch(self._write_stall_s), transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.end()
        if self._cutting is not None:
            self._cutting.cancel()
        super().connection_lost(exc)
        self._on_departure()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch.begin()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch.end()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._close()

    def send_400_response(self, msg: str) -> None:
        """For what h11 cannot read; nothing, if the answer to its beginning is on its way."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            is_long = len(self.conn.trailing_data[0]) >= MAX_HEAD_BYTES
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE if is_long else HTTPStatus.BAD_REQUEST
            self.transport.write(_plain_answer(status, "this is no request in HTTP/1.1"))
        self._close()

    def _close(self) -> None:
        """Once the peer has taken the rest: of that little, all within the time of a stall."""
        self.transport.close()
        self._cutting = self.loop.call_later(self._write_stall_s, self.transport.abort)


def _plain_answer(status: HTTPStatus, line: str) -> bytes:
    headers: dict[str, Any] = {
        "Date": formatdate(usegmt=True),
        "Server": SERVER,
        "Connection": "close",
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Length": len(line) + 1,
    }
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", f"{line}\n"]).encode()
