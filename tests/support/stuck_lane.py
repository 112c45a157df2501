"""A lane whose device hangs: it reaches no mark that it was given meanwhile, until it goes on."""

import threading

from tests.support.patience import PATIENCE_S
from voicegate.engine.device.lanes import HostLane, Mark


class StuckLane(HostLane):
    """As of a GPU that hangs, until `go_on`; and again from `hang` on."""

    def __init__(self, *, hangs: bool = True) -> None:
        self._goes_on = threading.Event()
        if not hangs:
            self._goes_on.set()

    def hang(self) -> None:
        self._goes_on = threading.Event()

    def go_on(self) -> None:
        self._goes_on.set()

    def mark(self) -> Mark:
        return _StuckMark(self, self._goes_on)


class _StuckMark:
    def __init__(self, lane: object, goes_on: threading.Event) -> None:
        self.lane = lane
        self._goes_on = goes_on

    @property
    def is_reached(self) -> bool:
        return self._goes_on.is_set()

    def seconds_since(self, _: Mark) -> float:
        return 0.0

    def wait(self) -> None:
        self._goes_on.wait(PATIENCE_S)
