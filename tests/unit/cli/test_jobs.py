"""`voicegate jobs` on a bad day: a disk that is full, a gateway that ends in the middle."""

import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.patience import PATIENCE_S

_AUDIO = bytes(200_000)


class _Gateway(BaseHTTPRequestHandler):
    """Answers to GET in turn, the last one again and again; None: it hangs up."""

    answers: ClassVar[list[bytes | None]]
    num_sent_bytes: ClassVar[int | None]  # of an answer, before it ends as if killed

    def do_GET(self) -> None:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer[: self.num_sent_bytes])

    def do_DELETE(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering(*answers: bytes | None, num_sent_bytes: int | None = None) -> Iterator[str]:
    handler = type("Handler", (_Gateway,), {"answers": list(answers), "num_sent_bytes": num_sent_bytes})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"ws://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def url() -> Iterator[str]:
    with answering(_AUDIO) as url:
        yield url


def job(state: str, *, ended_at: int | None = None) -> bytes:
    counts = {"characters": 100, "characters_done": 50, "seconds": 7.0}
    return json.dumps({"id": "5f1c", "state": state, "ended_at": ended_at, **counts}).encode()


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "voicegate", "jobs", *words)
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


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


def test_a_file_whose_gateway_ends_in_the_middle_is_not_kept(tmp_path: Path) -> None:
    with answering(_AUDIO, num_sent_bytes=100_000) as url:
        ended = run("get", "5f1c", "-o", str(tmp_path / "book.mp3"), "--url", url)
    assert ended.returncode == 1
    assert "the connection ended before the answer did" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_who_waits_for_a_job_waits_while_its_gateway_is_away() -> None:
    """A job outlives its server, and so does the wait for it."""
    with answering(job("running"), None, None, job("done", ended_at=1)) as url:
        ended = run("wait", "5f1c", "--url", url)
    assert (ended.returncode, ended.stdout.split()[:2]) == (0, ["5f1c", "done"])
    assert ended.stderr.count("cannot connect") == 1, "it is told once"


def test_a_gateway_that_never_answered_is_not_waited_for() -> None:
    with answering(None) as url:
        ended = run("wait", "5f1c", "--url", url)
    assert ended.returncode == 1
    assert "cannot connect" in ended.stderr


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (job("cancelled", ended_at=1), "5f1c  cancelled   50% of 100 characters, 7 s of audio\n"),
        (b'{"id": "5f1c", "deleted": true}', "5f1c  had ended; its audio is deleted\n"),
    ],
)
def test_cancel_tells_what_it_did(answer: bytes, told: str) -> None:
    with answering(answer) as url:
        ended = run("cancel", "5f1c", "--url", url)
    assert (ended.returncode, ended.stdout) == (0, told)
