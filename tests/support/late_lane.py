"""A lane that gets nowhere unless somebody waits for it: who forgets to wait for one of its marks sleeps for ever."""

from voicegate.engine.device.lanes import HostLane, Mark


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
