"""Tells systemd of this process, where it started it (sd_notify(3)): ready, alive, stopping."""

import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

# Between two signs of life. Higher needs a longer WatchdogSec.
_ALIVE_S: Final = 1.0


class ServiceManager:
    def __init__(self, env: Mapping[str, str]) -> None:
        """`env`: NOTIFY_SOCKET says where to; without it, no one asks."""
        self._address = env.get("NOTIFY_SOCKET", "")
        self._last_sign_s = 0.0

    def ready(self) -> None:
        self._tell("READY=1")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def alive(self, now_s: float) -> None:
        """May be called more often than it is told."""
        if now_s >= self._last_sign_s + _ALIVE_S:
            self._last_sign_s = now_s
            self._tell("WATCHDOG=1")

    def _tell(self, what: str) -> None:
        """Waits for no one; what is not taken is lost."""
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            sender.sendto(what.encode(), address)
