"""A lane that gets nowhere unless somebody waits for it: who forgets to wait for one of its marks sleeps for ever."""

from collections import defaultdict, deque
from copy import copy
from typing import TypeVar

from voicegate.engine.device.lanes import HostLane, Lane, Mark
from voicegate.engine.llm.backend import SequenceOutput
from voicegate.engine.llm.runner import LlmRunner

_Llm = TypeVar("_Llm", bound=LlmRunner)


class LateLane(HostLane):
    """Reaches a mark, and those before it, when that is waited for."""

    def __init__(self) -> None:
        self.num_marks = 0
        self.num_reached = 0
        self.num_waits = 0

    def mark(self) -> Mark:
        self.num_marks += 1
        return _LateMark(self, self.num_marks)


class _LateMark:
    def __init__(self, lane: LateLane, number: int) -> None:
        self.lane = lane
        self._number = number

    @property
    def is_reached(self) -> bool:
        return self.lane.num_reached >= self._number

    def seconds_since(self, _: Mark) -> float:
        return 0.0

    def wait(self) -> None:
        self.lane.num_waits += 1
        self.lane.num_reached = max(self.lane.num_reached, self._number)


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
