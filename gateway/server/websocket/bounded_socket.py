"""A WebSocket of the library's with bounds on what its peer makes it hold and do, whatever the frames are.

The library answers pings by itself and hands over all that one read brought. Here pongs do not pile up, a peer that
reads nothing is noticed with any writer, and what was read reaches the library piece by piece, in turn with
other sockets and no faster than the socket's allowance. The handshake is answered where it was read, and pings are
timers: the library has a task for each. It must not know messages or contexts.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from websockets.asyncio.connection import Connection
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import Event, State

from voicegate.gateway.server.entrance.callers import ANYBODY
from voicegate.gateway.server.entrance.reception import Asked
from voicegate.gateway.server.peer_watch import WRITE_LIMIT_BYTES, PeerWatch, keep_kernel_buffer_small
from voicegate.gateway.server.websocket.frame_protocol import FrameProtocol, whole_frame
from voicegate.gateway.server.websocket.keepalive import Keepalive
from voicegate.gateway.session.inflow import Inflow
from voicegate.gateway.session.quota import NOBODY
from voicegate.gateway.session.stall import StallWatch
from voicegate.protocol.errors import CloseCode, means_only_the_socket

# Frames handed over and not read yet, before reading stops. Each can be as large as a message may be.
MAX_QUEUED_FRAMES: Final = 4
CLOSE_TIMEOUT_S: Final = 2.0
# Parsed at a time: up to 85 of the smallest frames. Lower costs large messages more calls.
_PIECE_BYTES: Final = 512
# Time in a row before other sockets have their turn; a piece is not interrupted.
_TURN_S: Final = 0.001
_PONG_FIRST_BYTE: Final = bytes([0x80 | Opcode.PONG])


class Trouble(Enum):
    STALLED = auto()  # bytes wait and the peer takes none
    OVER_RATE = auto()  # it sends more than its allowance, and is read more slowly
    FLOODED = auto()  # it has done so for too long


class BoundedSocket(Connection):
    """`on_trouble` is called when trouble begins; until it is set, trouble cuts the socket."""

    protocol: FrameProtocol

    def __init__(
        self,
        asked: Asked,
        *,
        answer: Callable[["BoundedSocket", Request], Response],
        on_open: Callable[["BoundedSocket"], None],
        on_departure: Callable[[], None],
        inflow: Inflow,
        stall: StallWatch,
        ping_s: float,
        max_message_bytes: int,
    ) -> None:
        """`asked`: what its first bytes were found to be; `on_open` is called where `answer` lets it in."""
        super().__init__(
            FrameProtocol(max_size=max_message_bytes),
            ping_interval=None,
            close_timeout=CLOSE_TIMEOUT_S,
            max_queue=MAX_QUEUED_FRAMES,
            write_limit=WRITE_LIMIT_BYTES,
        )
        self.peer = ""  # its address, for the log
        # These three once it has asked.
        self.owner = NOBODY
        self.caller = ANYBODY
        self.session_id = ""
        self.on_trouble: Callable[[Trouble], None] = lambda _: self.transport.abort()
        self.on_held_up: Callable[[bool], None] = lambda _: None  # what is written waits for the peer, or no more
        # Given a text message that is whole while none is queued; False: it is to be queued for `recv`.
        self.on_text: Callable[[str], bool] = lambda _: False
        self._asked: Asked | None = asked  # None: that is done
        self._answer = answer
        self._on_open = on_open
        self._on_departure = on_departure
        self._ping_s = ping_s
        self._keepalive: Keepalive | None = None  # while it is open
        self._inflow = inflow
        self._stall = stall
        self._watch: PeerWatch | None = None  # once there is a connection
        self._unread: deque[bytes] = deque()  # received, and not parsed
        self._num_frames = 0
        self._num_excesses_told = 0
        self._late_pong = b""
        self._is_queue_full = False
        self._reading_on: asyncio.Handle | None = None
        self._cutting: asyncio.TimerHandle | None = None

    @property
    def num_held_bytes(self) -> int:
        """Bytes that wait for the peer outside the kernel."""
        return self.transport.get_write_buffer_size()

    @property
    def was_dropped(self) -> bool:
        """It ended without a word, or with one that means the socket and not what it was for."""
        word = self.protocol.close_rcvd or self.protocol.close_sent
        return means_only_the_socket(None if word is None else word.code)

    # --- the connection -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.peer = str(transport.get_extra_info("peername"))  # which no one can tell once it has gone
        # The library's queue of frames would pause and resume the transport by itself.
        self.recv_messages.pause = self._hold_queue
        self.recv_messages.resume = self._release_queue
        keep_kernel_buffer_small(transport)
        self._watch = PeerWatch(self.transport, self._stall, lambda: self.on_trouble(Trouble.STALLED))

    def connection_lost(self, exc: Exception | None) -> None:
        for handle in (self._reading_on, self._cutting):
            if handle is not None:
                handle.cancel()
        for watch in (self._watch, self._keepalive):
            if watch is not None:
                watch.end()
        self.on_held_up(False)
        self._unread.clear()
        super().connection_lost(exc)
        self._on_departure()

    def _ping(self, payload: bytes) -> None:
        if self.state is State.OPEN:
            self.protocol.send_ping(payload)
            self.send_data()

    def _meet_silence(self) -> None:
        if self.state is State.OPEN:
            self.protocol.fail(CloseCode.OUR_FAULT, "keepalive ping timeout")
            self.send_data()
            self._cut_soon()

    async def close(self, code: int = CloseCode.DONE, reason: str = "") -> None:
        """Returns when the connection is gone. For a peer that does not read, the library would wait without limit."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await super().close(code, reason)
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """Cut it without a word."""
        if self.state is not State.CLOSED:  # asyncio's transports cannot be aborted twice
            self.transport.abort()

    def _cut_soon(self) -> None:
        if self._cutting is None:
            self._cutting = self.loop.call_later(CLOSE_TIMEOUT_S, self.transport.abort)

    # --- reading ------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._asked is not None:
            data = self._begin(self._asked)
            if not data:
                return
        is_held = self._is_queue_full or self._reading_on is not None
        if not is_held and not self._unread and len(data) <= _PIECE_BYTES:  # nearly always
            wait_s = self._parse(data)
            if wait_s or self._is_queue_full:
                self._hold(wait_s)
            return
        self._unread += [data[start : start + _PIECE_BYTES] for start in range(0, len(data), _PIECE_BYTES)]
        if is_held:
            self.transport.pause_reading()
        else:
            self._parse_unread()

    def _begin(self, asked: Asked) -> bytes:
        """Returns what came behind the request."""
        self._asked = None
        self.request = asked.request
        self.response = self._answer(self, asked.request)
        self.protocol.send_response(self.response)
        self.send_data()
        if self.state is State.OPEN:
            self._keepalive = Keepalive(self._ping_s, ping=self._ping, on_silence=self._meet_silence)
            self._on_open(self)
        else:
            self._cut_soon()
        return asked.rest

    def eof_received(self) -> None:
        while self._unread:  # no more than one read brought
            super().data_received(self._unread.popleft())
        super().eof_received()

    def process_event(self, event: Event) -> None:
        if isinstance(event, Frame):
            self._num_frames += 1
            if event.opcode is Opcode.TEXT and event.fin and not self.recv_messages.frames and self._hand_over(event):
                return
            if event.opcode is Opcode.PONG and self._keepalive is not None:
                self._keepalive.note_pong(bytes(event.data))
        super().process_event(event)

    def _hand_over(self, frame: Frame) -> bool:
        """Without the queue and the task behind it, which cost more than all else of a small message."""
        try:
            text = bytes(frame.data).decode()
        except UnicodeDecodeError:
            return False  # the library knows what to say
        return self.on_text(text)

    def _parse(self, piece: bytes) -> float:
        """Returns the seconds until more may be parsed."""
        num_frames_before = self._num_frames
        super().data_received(piece)
        if self.protocol.state is State.CLOSING:
            # A peer that sent its close frame, or broke the protocol, may leave the TCP connection open for ever.
            self._cut_soon()
        return self._inflow.take(self._num_frames - num_frames_before, len(piece), self.loop.time())

    def _parse_unread(self) -> None:
        """Until there is no more, the queue is full, the allowance is used up, or the turn is over."""
        self._reading_on = None
        turn_over_s = self.loop.time() + _TURN_S
        wait_s = 0.0
        while self._unread and not self._is_queue_full and not wait_s and self.loop.time() < turn_over_s:
            wait_s = self._parse(self._unread.popleft())
        if self._unread or self._is_queue_full or wait_s:
            self._hold(wait_s)
        elif not self.transport.is_closing():
            self.transport.resume_reading()

    def _hold(self, wait_s: float) -> None:
        """Read no further: until there is allowance, until the queue is read, or for one turn of the others."""
        if self.transport.is_closing():
            return
        self.transport.pause_reading()
        if wait_s:
            self._reading_on = self.loop.call_later(wait_s, self._parse_unread)
            self._tell_excess()
        elif not self._is_queue_full:
            self._reading_on = self.loop.call_soon(self._parse_unread)

    def _tell_excess(self) -> None:
        if self._inflow.num_excesses > self._num_excesses_told:
            self._num_excesses_told = self._inflow.num_excesses
            self.on_trouble(Trouble.OVER_RATE)
        elif self._inflow.is_flood(self.loop.time()):
            self.on_trouble(Trouble.FLOODED)

    def _hold_queue(self) -> None:
        self._is_queue_full = True

    def _release_queue(self) -> None:
        self._is_queue_full = False
        if self._reading_on is None:
            self._reading_on = self.loop.call_soon(self._parse_unread)

    # --- writing ------------------------------------------------------------------------------------------

    @property
    def takes_at_once(self) -> bool:
        return not self.paused and self.protocol.state is State.OPEN

    def write_at_once(self, message: str | bytes) -> None:
        """Where it `takes_at_once`. Without `send`'s care for fragments and deadlines, most of what that costs."""
        self.transport.write(whole_frame(message))

    async def write(self, message: str | bytes) -> None:
        """As `send`."""
        if not self.takes_at_once:
            await self.send(message)
            return
        self.write_at_once(message)
        if self.paused:
            try:
                await self.drain()
            except OSError as error:  # the connection was reset meanwhile
                raise self.protocol.close_exc from error

    def send_data(self) -> None:
        if not self.protocol.writes:  # the library asks after whatever was read
            return
        if self.paused or self.state is not State.OPEN:
            # RFC 6455 section 5.5.3: of pings that came meanwhile, only the last needs an answer; at the end, none.
            frames = self.protocol.data_to_send()
            self.protocol.writes = [data for data in frames if data[:1] != _PONG_FIRST_BYTE]
            self._late_pong = next((data for data in reversed(frames) if data[:1] == _PONG_FIRST_BYTE), self._late_pong)
        super().send_data()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._watch is not None:
            self._watch.begin()
        self.on_held_up(True)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._watch is not None:
            self._watch.end()
        self.on_held_up(False)
        late_pong, self._late_pong = self._late_pong, b""
        if late_pong and self.state is State.OPEN:
            self.transport.write(late_pong)
