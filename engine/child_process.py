"""How a helper process of ours is started: only the end of what it reads from us ends it."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

# What a terminal or systemd sends to every process of our group when we are to drain or to end.
_SIGNALS_OF_THE_GROUP: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


def start_module(
    module: str, arguments: Sequence[str] = (), *, environment: Mapping[str, str] | None = None, **popen: Any
) -> "subprocess.Popen[bytes]":
    """`python -m MODULE`, with our environment and `environment`. Raises OSError.

    The signals of a group are blocked from its first instant, by the mask that it inherits. It stays in our session,
    so that Ctrl-Z stops it too. If we are killed what it reads from us ends.
    """
    # It finds the modules that we find, also where the package is not installed.
    paths = {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS_OF_THE_GROUP)
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            env={**os.environ, **(environment or {}), **paths},
            **popen,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
