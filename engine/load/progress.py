"""Reports of an engine's start. No torch: starters of engines elsewhere are told alike."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

Report = Callable[[str], None]


class Progress(Protocol):
    """Reports of a start. All calls come from one thread: the one that loads the engine."""

    def line(self, text: str) -> None:
        """A part is done, or there is something to know of it."""

    def share(self, part: str, num_done: int, num_steps: int) -> None:
        """How far a part is that takes long; the last time `num_done` is `num_steps`."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Progress in lines alone."""

    line: Report

    def share(self, part: str, num_done: int, num_steps: int) -> None:
        """A line tells when the part is done."""


SILENT: Final = Lines(lambda _: None)


@dataclass(frozen=True, slots=True)
class Named:
    """Progress of one engine of several, told to whoever is told of all."""

    name: str
    told: Progress

    def line(self, text: str) -> None:
        self.told.line(f"{self.name}: {text}")

    def share(self, part: str, num_done: int, num_steps: int) -> None:
        self.told.share(f"{self.name}: {part}", num_done, num_steps)
