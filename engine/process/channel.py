"""Frames over a socket in an event loop: what is sent in one turn of the loop leaves in one write.

Both a front and its engine processes have one. It must not know what the frames say.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast

import structlog

from voicegate.engine.process.wire import Frames, frame

log = structlog.get_logger()

# Written and not taken, above which the other side counts as not reading. Higher takes more memory; lower has a side
# that is late for a moment counted so: 300 streams of Opus are 1.2 MB a second.
_FULL_BYTES: Final = 1 << 20

Take = Callable[[int, int, bytes], None]  # kind, number, body


class Channel(asyncio.Protocol):
    """`take` is called for each frame; `on_full` when the other side does not read, and when it does again."""

    def __init__(
        self, take: Take, *, on_end: Callable[[], None], on_full: Callable[[bool], None] = lambda _: None
    ) -> None:
        """`on_end` is called once, when nothing comes any more."""
        self._take = take
        self._on_end = on_end
        self._on_full = on_full
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []  # for the end of this turn, or for the other side to read
        self.writable = asyncio.Event()  # unless the other side does not read
        self.writable.set()

    @property
    def is_full(self) -> bool:
        return not self.writable.is_set()

    async def open(self, end: socket.socket) -> None:
        """`end` is the channel's from here on."""
        await self._loop.create_unix_connection(lambda: self, sock=end)

    def send(self, kind: int, number: int = 0, body: bytes = b"") -> None:
        """Returns at once. Nothing is sent to a side that has gone."""
        if self._transport is None:
            return
        if not self._waiting and not self.is_full:
            self._loop.call_soon(self._flush)
        self._waiting.append(frame(kind, number, body))

    def close(self) -> None:
        """Closes. Sent frames still leave, if the other side reads."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    # --- from the loop ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_FULL_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._waiting.clear()
        self.writable.set()  # for nothing
        self._on_end()

    def data_received(self, data: bytes) -> None:
        try:
            for each in self._frames.feed(data):
                self._take(*each)
        except Exception:  # what cannot be read ends the channel: whatever follows is not to be trusted
            log.exception("channel_broken")
            if self._transport is not None:
                self._transport.abort()

    def pause_writing(self) -> None:
        self.writable.clear()
        self._on_full(True)

    def resume_writing(self) -> None:
        self.writable.set()
        self._flush()
        if not self.is_full:
            self._on_full(False)

    def _flush(self) -> None:
        if self._waiting and self._transport is not None and not self.is_full:
            frames, self._waiting = self._waiting, []
            self._transport.write(b"".join(frames))
