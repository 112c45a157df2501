"""Where a step's time begins: behind a step that still runs, at that one's end."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.lanes import LateLane
from tests.unit.engine.llm.support import small_llm_config
from voicegate.engine.device.capture import NOTHING_TO_CAPTURE
from voicegate.engine.device.lanes import Lane, Mark
from voicegate.engine.llm.backend import LlmPrompt, SequenceOutput, SequenceRequest
from voicegate.engine.llm.runner import Live, LlmRunner


class TimedLane(LateLane):
    """Its marks are one second apart."""

    def mark(self) -> Mark:
        mark = super().mark()
        mark.at_s = self.num_marks  # type: ignore[attr-defined]
        mark.seconds_since = lambda earlier: mark.at_s - earlier.at_s  # type: ignore[attr-defined, method-assign]
        return mark


class NoRunner(LlmRunner):
    """Two sequences that can always go on, and nothing comes of it."""

    graphs = NOTHING_TO_CAPTURE

    def __init__(self, lane: Lane) -> None:
        super().__init__(small_llm_config(), lane, num_slots=2, max_positions=100)
        for sequence_id in (0, 1):
            self.add(SequenceRequest(sequence_id, LlmPrompt((3,)), (10,)))

    def _begin(self, lives: Sequence[Live]) -> Callable[[], list[SequenceOutput]]:
        return list


def test_a_step_behind_one_that_runs_takes_its_end_for_the_beginning() -> None:
    lane = TimedLane()
    llm = NoRunner(lane)
    llm.launch([0])
    llm.launch([0])
    assert lane.num_marks == 3
    llm.wait()
    llm.poll()
    assert llm.counters["llm_seconds"] == 2
    assert not llm.is_busy


def test_a_step_behind_one_that_has_ended_has_a_beginning_of_its_own() -> None:
    lane = TimedLane()
    llm = NoRunner(lane)
    llm.launch([0])
    llm.wait()  # and nobody has polled: the lane stood idle for a while
    llm.launch([0])
    assert lane.num_marks == 4
    llm.wait()
    llm.poll()
    assert llm.counters["llm_seconds"] == 2


@pytest.mark.parametrize(("rows", "num_ahead"), [(([0], [0], [0]), 3), (([0], [0, 1]), 2), (([0, 1], [0]), 2)])
def test_so_many_steps_are_launched_ahead_and_of_one_row_alone_one_more(
    rows: Sequence[list[int]], num_ahead: int
) -> None:
    lane = TimedLane()
    llm = NoRunner(lane)
    for number, sequence_ids in enumerate(rows):
        assert llm.takes_step
        llm.launch(sequence_ids)
        assert llm.takes_step is (number + 1 < num_ahead)
    llm.wait()
    llm.poll()
    assert llm.takes_step
