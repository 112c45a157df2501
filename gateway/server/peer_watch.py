"""Whether the peer at the other end of a transport takes what waits for it, whatever it is. Owns no protocol."""

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from voicegate.gateway.server.alarm import Alarm
from voicegate.gateway.session.stall import StallWatch

# Bytes that wait outside the kernel before a write waits for the peer, so: the least that a stalled peer shows by.
WRITE_LIMIT_BYTES: Final = 8 * 1024
# Bytes that the kernel holds unsent; the rest waits where a cancel still reaches it. Lower costs wake-ups on fast
# links, higher lets more stale audio out after a cancel.
_KERNEL_UNSENT_BYTES: Final = 16 * 1024
# Linux: tcpi_bytes_acked of struct tcp_info (linux/tcp.h), which counts up for good.
_TCP_INFO_BYTES: Final = 128
_BYTES_ACKED: Final = struct.Struct("=120xQ")


def keep_kernel_buffer_small(transport: asyncio.BaseTransport) -> None:
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        raw_socket = transport.get_extra_info("socket")
        with suppress(AttributeError, OSError):  # no socket of the kernel's; the peer may be gone already
            raw_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _KERNEL_UNSENT_BYTES)


class PeerWatch:
    """From `begin`, when writing is paused, to `end`; `on_stalled` is called once, if it comes to that."""

    def __init__(self, transport: asyncio.WriteTransport, stall: StallWatch, on_stalled: Callable[[], None]) -> None:
        self._transport = transport
        self._stall = stall
        self._on_stalled = on_stalled
        self._loop = asyncio.get_running_loop()
        self._looking = Alarm()

    def begin(self) -> None:
        self._stall.begin(self._loop.time(), self._num_taken_bytes())
        self._looking.set(self._stall.next_look_s, self._look)

    def end(self) -> None:
        self._looking.call_off()

    def _look(self) -> None:
        if self._stall.look(self._loop.time(), self._num_taken_bytes()):
            self._on_stalled()
        else:
            self._looking.set(self._stall.next_look_s, self._look)

    def _num_taken_bytes(self) -> int:
        """Bytes that the peer's side acknowledged. Elsewhere than on Linux: those that left for the kernel, a weaker
        sign."""
        raw_socket = self._transport.get_extra_info("socket")
        try:
            info = raw_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            (num_acked_bytes,) = _BYTES_ACKED.unpack(info)
        except (AttributeError, OSError, struct.error):
            return -self._transport.get_write_buffer_size()
        return int(num_acked_bytes)
