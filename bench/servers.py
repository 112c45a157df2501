"""Servers that a bench starts, and ends with its block: voicegate as shipped, and peers."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_START_LIMIT_S: Final = 300.0  # vLLM by itself takes some 100 s
_STOP_LIMIT_S: Final = 20.0


@contextmanager
def running(
    command: Sequence[str],
    log: Path,
    *,
    environment: Mapping[str, str] | None = None,
    is_heard: bool = True,
    has_children: bool = False,
) -> Iterator["subprocess.Popen[str]"]:
    """`log`: what it says of errors; of all, unless the caller reads its output (`is_heard`).

    `has_children`: they are ended with it. Raises OSError.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE if is_heard else file,
            stderr=file,
            text=True,
            env=environment,
            start_new_session=has_children,
        )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_LIMIT_S)
        if has_children:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def announced(process: "subprocess.Popen[str]", mark: str, log: Path) -> str:
    """The rest of the line of its output that has `mark`. Raises RuntimeError where none comes."""
    assert process.stdout is not None
    limit = threading.Timer(_START_LIMIT_S, process.kill)  # which ends its output
    limit.start()
    try:
        for line in process.stdout:
            if mark in line:
                return line.partition(mark)[2].strip()
    finally:
        limit.cancel()
    process.wait()
    raise not_started(process, log)


def not_started(process: "subprocess.Popen[str]", log: Path) -> RuntimeError:
    return RuntimeError(f"the server did not start (status {process.poll()}):\n{log.read_text()[-2000:]}")


@contextmanager
def voicegate(model: Path, flags: Sequence[str], log: Path) -> Iterator[tuple[str, int, float]]:
    """Its url, process id, and seconds until it was ready. Raises RuntimeError where it does not come up."""
    command = [sys.executable, "-m", "voicegate", "serve", "--model-dir", str(model), "--port", "0", *flags]
    began_s = time.monotonic()
    with running(command, log) as process:
        url = announced(process, "is ready: ", log).partition(",")[0]
        with urllib.request.urlopen(http_of(url, "/readyz")) as answer:
            if answer.status != 200:
                raise RuntimeError(f"/readyz says {answer.status}")
        yield url, process.pid, time.monotonic() - began_s


def http_of(url: str, path: str) -> str:
    """Another path of the server at a WebSocket's url."""
    return url.replace("ws://", "http://").rpartition("/v1/")[0] + path


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
