"""Where an engine process runs, and how it is started there."""

import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from voicegate.engine.child_process import start_module

_STDERR: Final = 2


class EngineProcess(Protocol):
    """What a front needs of `subprocess.Popen`; tests have others."""

    pid: int

    def kill(self) -> None:
        """Nothing where it has ended."""

    def wait(self, timeout: float) -> int:
        """Its exit status. Blocks. Raises subprocess.TimeoutExpired."""


@dataclass(frozen=True, slots=True)
class Site:
    name: str
    launch: Callable[[socket.socket], EngineProcess]  # its end of the channel is its own copy; raises OSError; blocks
    greeting: bytes  # what the process needs to know


def launched(module: str, name: str, end: socket.socket, environment: Mapping[str, str]) -> EngineProcess:
    """`python -m MODULE NAME DESCRIPTOR`: the name is for people who look at processes. Raises OSError."""
    descriptor = end.fileno()
    return start_module(
        module,
        (name, str(descriptor)),
        environment=environment,
        pass_fds=(descriptor,),
        stdin=subprocess.DEVNULL,
        stdout=_STDERR,  # our standard output is for what our user asked for
    )
