"""A Redis, or Valkey, of a test's own: its log of commands is kept over kills, its socket is in the test's folder."""

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.support.patience import PATIENCE_S
from tests.support.programs import required


class RedisServer:
    def __init__(self, folder: Path, *, options: tuple[str, ...] = ()) -> None:
        folder.mkdir()
        self._program = required("valkey-server" if shutil.which("valkey-server") else "redis-server")
        self._folder = folder
        self._options = ("--appendonly", "yes", "--appendfsync", "always", *options)
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{folder / 'socket'}"
        self.start()

    def start(self) -> None:
        path = self._folder / "socket"
        path.unlink(missing_ok=True)
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(self._program, "--port", "0", "--unixsocket", str(path), "--dir", str(self._folder)),
                    *("--save", "", *self._options),
                ],
                stdout=log,
                stderr=log,
            )
        until_s = time.monotonic() + PATIENCE_S
        while not _listens(path):  # the file is there before anybody listens
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < until_s, (self._folder / "log").read_text()
            time.sleep(0.02)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def halt(self) -> None:
        """It answers nothing, and its socket stays open."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, number)


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0
