"""Ctrl-C while modules are imported. Some packages catch every error of theirs, and the interrupt would be lost."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def end_at_once(number: int, _frame: object) -> None:
    """A handler of signals, for as long as nothing is half done."""
    os._exit(128 + number)


@contextmanager
def interrupts_end_it() -> Iterator[None]:
    """Ends the process without a word, with the status that a shell gives for it."""
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # it is ignored, as in a script's background, or handled by a program that runs a command
        return
    signal.signal(signal.SIGINT, end_at_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
