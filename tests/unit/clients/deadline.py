"""A test that waits for what never comes fails instead of hanging."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tests.support.patience import PATIENCE_S


@contextmanager
def deadline(seconds: float = 2 * PATIENCE_S) -> Iterator[None]:
    """Raises TimeoutError in the main thread, out of whatever it waits for."""

    def give_up(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"the test took longer than {seconds:g} s")

    previous = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
