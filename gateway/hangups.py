"""SIGHUP before there is an event loop to take it: it is remembered, where it would end a process that still starts.

By a handler and not by a mask: threads that libraries have started by then would be given the signal instead.
"""

import signal


class _Held:
    num = 0


def hold_hangups() -> None:
    """From here on, until somebody else handles them."""
    signal.signal(signal.SIGHUP, _note)


def num_held_hangups() -> int:
    return _Held.num


def _note(_signal: int, _frame: object) -> None:
    _Held.num += 1
