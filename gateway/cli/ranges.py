"""Numbers that flags take: what is out of range is told where it was typed, before anything begins."""

import argparse
from collections.abc import Callable
from math import inf
from typing import TypeVar

N = TypeVar("N", int, float)


def in_range(kind: type[N], minimum: float, maximum: float = inf) -> Callable[[str], N]:
    """For argparse's `type`; both ends are in it, infinity and NaN never."""

    def read(text: str) -> N:
        value = kind(text)
        if not minimum <= value <= maximum or value == inf:
            limits = f"at least {minimum}" if maximum == inf else f"{minimum} to {maximum}"
            raise argparse.ArgumentTypeError(f"{text} is not {limits}")
        return value

    read.__name__ = kind.__name__  # argparse names it where the text is no number at all
    return read
