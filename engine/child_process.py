"""How a helper process of ours is started, and when the next one where it was lost.

Only the end of what it reads from us ends it.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import resource_tracker
from typing import Any, Final

# Signals that a terminal or systemd sends to every process of our group when we are to drain or to end.
SIGNALS_OF_THE_GROUP: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


def start_module(
    module: str, arguments: Sequence[str] = (), *, environment: Mapping[str, str] | None = None, **popen: Any
) -> "subprocess.Popen[bytes]":
    """`python -m MODULE`, with our environment and `environment`. Raises OSError.

    The signals of a group are blocked from its first instant, by the mask that it inherits. It stays in our session,
    so that Ctrl-Z stops it too. If we are killed what it reads from us ends.
    """
    # It finds the modules that we find, also where the package is not installed.
    paths = {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS_OF_THE_GROUP)
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            env={**os.environ, **(environment or {}), **paths},
            **popen,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def before_multiprocessing() -> None:
    """Call it in the thread that starts a process with Python's multiprocessing, or has a package do so.

    The first such start also starts a tracker, after which this thread has SIGINT and SIGTERM unblocked (Python 3.11,
    3.12): then a group's signal would end a process of `start_module`, and what it starts from here.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


# A process that lived for shorter is followed later than the one before. Lower -> one that dies at certain utterances
# takes more of them with it; higher -> what was mended long ago still counts.
_LONG_LIFE_S: Final = 60.0
_MAX_DELAY_S: Final = 30.0


class Backoff:
    """At once after a long life, else later and later. Pure."""

    def __init__(self) -> None:
        self._delay_s = 0.0

    def delay_s(self, life_s: float) -> float:
        """After a process that served for so long; 0: it never did, as one that is asked again for what it refused."""
        if life_s >= _LONG_LIFE_S:
            self._delay_s = 0.0
        delay_s, self._delay_s = self._delay_s, min(max(2 * self._delay_s, 1.0), _MAX_DELAY_S)
        return delay_s
