"""The loads that the bench knows, and how they are named: `alone:20j`, `live:128:whole`, `mixed:400`, `closed:8`."""

import argparse
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    ALONE = "alone"  # one stream, one sentence after another, each heard for a moment
    CLOSED = "closed"  # N at any time; each takes all as fast as it is made, and is followed by the next
    LIVE = "live"  # open loop: Poisson arrivals, so many that N are live on average
    MIXED = "mixed"  # as LIVE: texts whole and paced, every fifth interrupted, slow readers among them


@dataclass(frozen=True, slots=True)
class Writer:
    """How a text comes; `words_per_s` None: whole."""

    words_per_s: float | None = None
    has_jitter: bool = False  # exponential times between words, with the same mean

    def __str__(self) -> str:
        return "whole" if self.words_per_s is None else f"{self.words_per_s:g}{'j' if self.has_jitter else ''}"


WHOLE: Final = Writer()
# A mixed load's writers, each as likely.
MIXED_WRITERS: Final = (WHOLE, WHOLE, WHOLE, Writer(10, True), Writer(20, True), Writer(40, True))


@dataclass(frozen=True, slots=True)
class Scenario:
    kind: Kind
    num_streams: int = 1
    writer: Writer = WHOLE

    def __str__(self) -> str:
        match self.kind:
            case Kind.ALONE:
                return f"alone:{self.writer}"
            case Kind.MIXED:
                return f"mixed:{self.num_streams}"
            case Kind.CLOSED | Kind.LIVE:
                return f"{self.kind.value}:{self.num_streams}:{self.writer}"


class UnknownScenario(argparse.ArgumentTypeError, ValueError):
    """The message says how scenarios are written."""


FORMS: Final = (
    "alone:WRITER, closed:N[:WRITER], live:N[:WRITER] and mixed:N, where WRITER is whole, 20 or 20j (words a second)"
)


def parse(text: str) -> Scenario:
    """Raises UnknownScenario."""
    kind, *rest = text.split(":")
    try:
        match Kind(kind), rest:
            case Kind.ALONE, [writer]:
                return Scenario(Kind.ALONE, writer=_writer(writer))
            case Kind.MIXED, [num]:
                return Scenario(Kind.MIXED, _number(num))
            case (Kind.CLOSED | Kind.LIVE) as known, [num]:
                return Scenario(known, _number(num))
            case (Kind.CLOSED | Kind.LIVE) as known, [num, writer]:
                return Scenario(known, _number(num), _writer(writer))
            case _:
                pass
    except ValueError:
        pass
    raise UnknownScenario(f"{text!r} is no scenario; there are {FORMS}")


def _writer(text: str) -> Writer:
    if text == "whole":
        return WHOLE
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(j?)", text)
    if match is None or not float(match[1]) > 0:
        raise ValueError(text)
    return Writer(float(match[1]), bool(match[2]))


def _number(text: str) -> int:
    num = int(text)
    if num < 1:
        raise ValueError(text)
    return num
