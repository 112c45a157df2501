"""The I/O shell of one HTTP request: uvicorn's protocol, with bounds on what its peer makes it hold and wait for.

It must not know what is asked for.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from voicegate.gateway.server.entrance.reception import MAX_HEAD_BYTES, NO_REQUEST
from voicegate.gateway.server.entrance.unreadable import plain_answer
from voicegate.gateway.server.peer_watch import WRITE_LIMIT_BYTES, PeerWatch, keep_kernel_buffer_small
from voicegate.gateway.session.stall import StallWatch

# Time of a series of turns, before the loop does something else. A turn under way is not interrupted.
_TURN_S: Final = 0.001


class Turns:
    def __init__(self) -> None:
        self._waiting: deque[Callable[[float], bool]] = deque()
        self._is_running = False

    def join(self, read: Callable[[float], bool]) -> None:
        """`read` is told when its turn is over, in the loop's time, and called until it says that it has no more."""
        self._waiting.append(read)
        self._run_soon()

    def _run_soon(self) -> None:
        if self._waiting and not self._is_running:
            self._is_running = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_running = False
        loop = asyncio.get_running_loop()
        over_s = loop.time() + _TURN_S
        try:
            while self._waiting:
                read = self._waiting.popleft()
                if read(over_s):
                    self._waiting.append(read)
                if loop.time() >= over_s:
                    break
        finally:  # a failing one does not keep others from their turns
            self._run_soon()


# Parsed at a time: up to 170 of the smallest chunks of a body. Lower costs large bodies more calls.
_PIECE_BYTES: Final = 1024
# Read and dropped of an unwanted body. Lower makes clients that send more lose the answer, which says why; higher lets
# them send in vain for longer.
_DISCARDED_BYTES: Final = 64 * 1024 * 1024
_DISCARDING_S: Final = 5.0


class HttpServer:
    """State that all requests share."""

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
        self.turns = Turns()


class _AnswersTransport:
    """The part of a transport that uvicorn's answers use. Their end is not always that of the connection."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = close


class HttpConnection(H11Protocol):
    """`visitor` is what the app is told of it: `request.state.visitor`."""

    def __init__(self, server: HttpServer, visitor: object, *, on_departure: Callable[[], None]) -> None:
        super().__init__(server.config, server.state, {"visitor": visitor}, asyncio.get_running_loop())
        self._write_stall_s = server.write_stall_s
        self._on_departure = on_departure
        self._unread: deque[bytes] = deque()  # received, and not parsed
        self._turns = server.turns
        self._waits_for_turn = False
        self._num_discarded_bytes: int | None = None  # once the answer is out and the peer may still be sending
        self._cutting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._answers_transport = cast("asyncio.Transport", _AnswersTransport(transport, self._close))
        self._is_in_tls = transport.get_extra_info("sslcontext") is not None
        transport.set_write_buffer_limits(high=WRITE_LIMIT_BYTES)
        keep_kernel_buffer_small(transport)
        self._watch = PeerWatch(transport, StallWatch(self._write_stall_s), transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.end()
        if self._cutting is not None:
            self._cutting.cancel()
        self._unread.clear()
        super().connection_lost(exc)
        self._on_departure()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio asks whether to leave the transport open
        """Keeps the answer for a client that asked for a page and says no more; one that sent anything else has left.

        In TLS there are no halves, and loops complain of who asks for one."""
        if self._is_in_tls:
            return False
        is_complete = self.conn.their_state in (h11.DONE, h11.MUST_CLOSE)
        return is_complete and self.scope["method"] in ("GET", "HEAD")

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None:
            self.cycle.transport = self._answers_transport

    def data_received(self, data: bytes) -> None:
        if self._num_discarded_bytes is not None:
            self._discard(len(data))
            return
        self._unread += [data[start : start + _PIECE_BYTES] for start in range(0, len(data), _PIECE_BYTES)]
        while self._unread and self.cycle is None:  # no head waits behind the bodies of others
            super().data_received(self._unread.popleft())
            if self.transport.is_closing():
                return
        if self._unread:
            self.transport.pause_reading()  # even while it waits: uvicorn may have resumed it
            if not self._waits_for_turn:
                self._waits_for_turn = True
                self._turns.join(self._parse_unread)

    def _parse_unread(self, over_s: float) -> bool:
        """Until there is no more, or the turn is over: a body in chunks of a byte takes a second to parse."""
        while self._unread:
            super().data_received(self._unread.popleft())
            if self.loop.time() >= over_s:
                break
        self._waits_for_turn = bool(self._unread) and not self.transport.is_closing()
        if not (self._waits_for_turn or self.transport.is_closing() or self.flow.read_paused):
            self.transport.resume_reading()
        return self._waits_for_turn

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch.begin()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch.end()

    def on_response_complete(self) -> None:
        self._close()

    def send_400_response(self, msg: str) -> None:
        """For what h11 cannot read; nothing, if the answer to its beginning is on its way."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(plain_answer(HTTPStatus.BAD_REQUEST, NO_REQUEST))
        self._close()

    def _close(self) -> None:
        """At the end of an answer, which uvicorn may tell twice."""
        if self._num_discarded_bytes is not None:
            return
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._discard_rest()
        else:
            self._end()

    def _discard_rest(self) -> None:
        """Unparsed, which costs least. A connection closed now would be reset, and that would overtake the answer."""
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._cutting = self.loop.call_later(_DISCARDING_S, self._end)
        self._num_discarded_bytes = 0
        self._discard(sum(map(len, self._unread)))
        self._unread.clear()
        self.flow.resume_reading()
        self.transport.resume_reading()

    def _discard(self, num_bytes: int) -> None:
        assert self._num_discarded_bytes is not None, "it has begun"
        self._num_discarded_bytes += num_bytes
        if self._num_discarded_bytes > _DISCARDED_BYTES:
            self._end()

    def _end(self) -> None:
        """Once the peer has taken the rest: of that little, all within the time of a stall."""
        self.transport.close()
        if self._cutting is not None:
            self._cutting.cancel()
        self._cutting = self.loop.call_later(self._write_stall_s, self.transport.abort)
