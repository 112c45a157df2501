"""Lanes that get nowhere by themselves: who forgets to wait for one of their marks sleeps for ever."""

import threading
from collections import defaultdict, deque
from copy import copy
from typing import TypeVar

from tests.support.patience import PATIENCE_S
from voicegate.engine.device.lanes import HostLane, Lane, Mark
from voicegate.engine.llm.backend import SequenceOutput
from voicegate.engine.llm.runner import LlmRunner

_Llm = TypeVar("_Llm", bound=LlmRunner)


class _Mark:
    def __init__(self, lane: "LateLane | StuckLane", number: int) -> None:
        self.lane = lane
        self._number = number

    @property
    def is_reached(self) -> bool:
        return self.lane.num_reached >= self._number

    def seconds_since(self, _: Mark) -> float:
        return 0.0

    def wait(self) -> None:
        self.lane.wait_for(self._number)


class LateLane(HostLane):
    """Reaches a mark, and those before it, when that is waited for."""

    def __init__(self) -> None:
        self.num_marks = 0
        self.num_reached = 0
        self.num_waits = 0

    def mark(self) -> Mark:
        self.num_marks += 1
        return _Mark(self, self.num_marks)

    def wait_for(self, number: int) -> None:
        self.num_waits += 1
        self.num_reached = max(self.num_reached, number)


class StuckLane(HostLane):
    """As of a GPU that hangs, until `go_on`, and again from `hang` on: no mark given meanwhile is reached."""

    def __init__(self, *, hangs: bool = True) -> None:
        self.num_marks = 0
        self.num_reached = 0
        self._moved = threading.Condition()
        self._hangs = hangs

    def hang(self) -> None:
        self._hangs = True

    def go_on(self) -> None:
        with self._moved:
            self._hangs = False
            self.num_reached = self.num_marks
            self._moved.notify_all()

    def mark(self) -> Mark:
        with self._moved:
            self.num_marks += 1
            if not self._hangs:
                self.num_reached = self.num_marks
            return _Mark(self, self.num_marks)

    def wait_for(self, number: int) -> None:
        with self._moved:
            self._moved.wait_for(lambda: self.num_reached >= number, PATIENCE_S)


def on_lane(llm: _Llm, lane: Lane) -> _Llm:
    """This LLM, with its sequences, whose steps go to this lane."""
    made = copy(llm)
    made._lane, made._in_flight = lane, deque()
    made.counters, made.num_fetched = defaultdict(float), 0
    return made


def fetch_oldest(llm: LlmRunner) -> list[SequenceOutput]:
    """Output of the oldest step in flight; on a GPU, of others that are done, too."""
    llm._in_flight[0].end.wait()
    return llm.poll()
