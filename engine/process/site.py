"""Where an engine process runs, and how it is started: `launched` is a process of this machine."""

import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from voicegate.engine.child_process import start_module

_STDERR: Final = 2


class EngineProcess(Protocol):
    @property
    def pid(self) -> int: ...

    def kill(self) -> None:
        """Nothing where it has ended."""

    def wait(self, timeout_s: float) -> int | None:
        """Its exit status; None: it goes on. From a thread of its own: it blocks."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place for an engine process."""

    name: str
    launch: Callable[[socket.socket], EngineProcess]  # its end of the channel is its own copy; raises OSError; blocks
    greeting: bytes  # what the process needs to know


class _Process:
    """Implements EngineProcess."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self.pid = process.pid

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout_s: float) -> int | None:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None


def launched(module: str, name: str, end: socket.socket, environment: Mapping[str, str]) -> EngineProcess:
    """`python -m MODULE NAME DESCRIPTOR`: the name is for people who look at processes. Raises OSError."""
    descriptor = end.fileno()
    process = start_module(
        module,
        (name, str(descriptor)),
        environment=environment,
        pass_fds=(descriptor,),
        stdin=subprocess.DEVNULL,
        stdout=_STDERR,  # our standard output is for what our user asked for
    )
    return _Process(process)
