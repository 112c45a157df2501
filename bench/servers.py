"""Servers that a bench starts, and ends with its block: voicegate as shipped, and peers."""

import http.client
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
_ANSWER_S: Final = 60.0
_SHOWN_CHARS: Final = 2000
# Reads to the end of its input, which comes with the end of this process, and ends a group.
_GUARD: Final = ("sh", "-c", 'read -r _; kill -s KILL -- "-$0"')
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # servers are on this machine


@contextmanager
def running(
    command: Sequence[str],
    log: Path,
    *,
    environment: Mapping[str, str] | None = None,
    is_heard: bool = True,
) -> Iterator["subprocess.Popen[str]"]:
    """`log`: what it says of errors; of all, unless the caller reads its output (`is_heard`).

    Processes that it started end with it, also where this process is killed. Raises OSError.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE if is_heard else file,
            stderr=file,
            text=True,
            env=environment,
            start_new_session=True,
        )
    guard = subprocess.Popen(
        [*_GUARD, str(process.pid)], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_LIMIT_S)
        guard.communicate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def ask(request: str | urllib.request.Request, *, timeout_s: float = _ANSWER_S) -> bytes:
    """The answer's body. Raises OSError where there is none, or another status than 2xx."""
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            body: bytes = answer.read()
            return body
    except http.client.HTTPException as error:  # half an answer, or no HTTP
        raise OSError(f"no answer that can be read: {error!r}") from error


def announced(process: "subprocess.Popen[str]", mark: str, log: Path) -> str:
    """The rest of the line of its output that has `mark`. Raises RuntimeError where none comes."""
    assert process.stdout is not None
    limit_s = _START_LIMIT_S
    limit = threading.Timer(limit_s, process.kill)  # which ends its output
    began_s = time.monotonic()
    limit.start()
    try:
        for line in process.stdout:
            if mark in line:
                return line.partition(mark)[2].strip()
    finally:
        limit.cancel()
    process.wait()
    raise not_started(process, log, None if time.monotonic() - began_s < limit_s else limit_s)


def not_started(process: "subprocess.Popen[str]", log: Path, limit_s: float | None = None) -> RuntimeError:
    """`limit_s`: it was given up after so long; None: it ended by itself."""
    why = f"was not ready after {limit_s:g} s" if limit_s is not None else f"did not start (status {process.poll()})"
    return RuntimeError(f"the server {why}; the end of {log}:\n{log.read_text(errors='replace')[-_SHOWN_CHARS:]}")


@contextmanager
def voicegate(model: Path, flags: Sequence[str], log: Path) -> Iterator[tuple[str, int, float]]:
    """Its url, process id, and seconds until it was ready. Raises RuntimeError where it does not come up."""
    command = [sys.executable, "-m", "voicegate", "serve", "--model-dir", str(model), "--port", "0", *flags]
    began_s = time.monotonic()
    with running(command, log) as process:
        url = announced(process, "is ready: ", log).partition(",")[0]
        ask(http_of(url, "/readyz"))
        yield url, process.pid, time.monotonic() - began_s


def http_of(url: str, path: str) -> str:
    """Another path of the server at a WebSocket's url."""
    return url.replace("ws://", "http://").rpartition("/v1/")[0] + path


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
