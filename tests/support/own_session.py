"""A Python program in a process, session and group of its own, as an engine or a gateway is."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def running(program: str) -> Iterator["subprocess.Popen[str]"]:
    """With pipes, of text. It is killed at the end."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        yield process
        process.kill()
