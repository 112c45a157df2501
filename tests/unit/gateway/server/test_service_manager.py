"""Signs for systemd: as often as is of use, and to nobody where nobody asks or listens."""

import socket
from pathlib import Path

import pytest

from voicegate.gateway.server.service_manager import ServiceManager


@pytest.mark.parametrize("is_abstract", [False, True])
def test_signs_of_life_are_told_now_and_then(tmp_path: Path, is_abstract: bool) -> None:
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}" if is_abstract else name)
        listener.setblocking(False)
        manager = ServiceManager({"NOTIFY_SOCKET": f"@{name}" if is_abstract else name})
        manager.ready()
        for now_s in (100.0, 100.25, 100.5, 101.0, 101.25):
            manager.alive(now_s)
        manager.stopping()
        told = [listener.recv(100) for _ in range(4)]
        with pytest.raises(BlockingIOError):
            listener.recv(100)
    assert told == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1", b"STOPPING=1"]


@pytest.mark.parametrize("env", [{}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
def test_where_nobody_listens_nothing_happens(env: dict[str, str]) -> None:
    manager = ServiceManager(env)
    manager.ready()
    manager.alive(1.0)
    manager.stopping()
