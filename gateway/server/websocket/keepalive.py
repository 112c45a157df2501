"""Whether a peer that says nothing is still there: a ping from time to time, and its pong.

It must not know the protocol.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import Final

_PAYLOAD: Final = struct.Struct(">I")


class Keepalive:
    """From now to `end`. Timers, as a task of each socket costs a handshake more than a ping does."""

    def __init__(self, interval_s: float, *, ping: Callable[[bytes], None], on_silence: Callable[[], None]) -> None:
        """`ping` is given each payload, of four bytes; `on_silence` is called once, if one is not answered in time."""
        self._interval_s = interval_s
        self._ping = ping
        self._on_silence = on_silence
        self._num_pings = 0
        self._awaited: bytes | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(interval_s, self._tick)

    def note_pong(self, payload: bytes) -> None:
        if payload == self._awaited:
            self._awaited = None

    def end(self) -> None:
        self._timer.cancel()

    def _tick(self) -> None:
        if self._awaited is not None:
            self._on_silence()
            return
        self._awaited = _PAYLOAD.pack(self._num_pings % 2**32)
        self._num_pings += 1
        self._timer = self._loop.call_later(self._interval_s, self._tick)
        self._ping(self._awaited)
