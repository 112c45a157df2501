"""`voicegate jobs get` where the disk is full: the file is to blame, and not the gateway."""

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

_AUDIO = bytes(200_000)


class _Gateway(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(_AUDIO)))
        self.end_headers()
        self.wfile.write(_AUDIO)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Gateway)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"ws://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def got(url: str, file: Path, *, room_bytes: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-m", "voicegate", "jobs", "get", "5f1c", "-o", str(file), "--url", url),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, room_bytes)),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
    )


def test_a_file_that_has_no_room_is_named(url: str, tmp_path: Path) -> None:
    ended = got(url, tmp_path / "book.mp3", room_bytes=100_000)
    assert (ended.returncode, ended.stderr) == (
        1,
        f"voicegate: {tmp_path}/book.mp3 cannot be written: File too large\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_has_room_is_whole(url: str, tmp_path: Path) -> None:
    ended = got(url, tmp_path / "book.mp3", room_bytes=300_000)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "book.mp3").read_bytes() == _AUDIO
