"""A backend whose steps the engine chooses: a runner of ours on its lane, launched a little ahead."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from voicegate.engine.device.lanes import Lane, Mark
from voicegate.engine.device.watcher import NO_WAKER, Waker
from voicegate.engine.llm.backend import LlmTraits, SequenceOutput, SequenceRequest
from voicegate.engine.llm.runner import LaunchedStep, LlmRunner

# Launched but not fetched. More would only let a cancel or a newcomer wait longer; fewer would let a GPU wait for
# Python between launches.
_MAX_LAUNCHES_IN_FLIGHT: Final = 2
# A launch is a step more for so many rows: with many, the host takes longer over a step's tokens than the device over
# the step. Lower -> less of the host's time; higher -> a newcomer waits for fewer steps of others.
_ROWS_PER_STEP: Final = 16
_MAX_STEPS: Final = 4


@dataclass(frozen=True, slots=True)
class _Launch:
    steps: list[LaunchedStep]
    begin: Mark
    end: Mark

    def outputs(self) -> list[SequenceOutput]:
        """What all its steps made of each sequence."""
        if len(self.steps) == 1:
            return self.steps[0].outputs()
        made: dict[int, SequenceOutput] = {}
        for step in self.steps:
            for new in step.outputs():
                old = made.get(new.sequence_id)
                made[new.sequence_id] = new if old is None else _behind(old, new)
        return list(made.values())


class SteppedLlm:
    """An LlmBackend. On a CPU a step is done when `launch` returns."""

    traits = LlmTraits(takes_streamed_text=True, is_reproducible=True)

    def __init__(self, runner: LlmRunner, lane: Lane) -> None:
        self.runner = runner
        self.counters: defaultdict[str, float] = defaultdict(float)
        self._lane = lane
        self._waker: Waker = NO_WAKER
        self._in_flight: deque[_Launch] = deque()

    def set_waker(self, waker: Waker) -> None:
        self._waker = waker

    # --- sequences --------------------------------------------------------------------------------------------

    @property
    def num_free_slots(self) -> int:
        return self.runner.num_free_slots

    def add(self, request: SequenceRequest) -> None:
        self.runner.add(request)

    def push_text(self, sequence_id: int, text_ids: Sequence[int]) -> None:
        self.runner.push_text(sequence_id, text_ids)

    def end_text(self, sequence_id: int) -> None:
        self.runner.end_text(sequence_id)

    def read(self, sequence_id: int, text_ids: Sequence[int], *, until: int | None) -> None:
        self.runner.read(sequence_id, text_ids, until=until)

    def abort(self, sequence_id: int) -> None:
        self.runner.abort(sequence_id)

    # --- steps ------------------------------------------------------------------------------------------------

    @property
    def takes_step(self) -> bool:
        return len(self._in_flight) < _MAX_LAUNCHES_IN_FLIGHT

    def is_runnable(self, sequence_id: int) -> bool:
        return self.runner.is_runnable(sequence_id)

    def launch(self, sequence_ids: Sequence[int]) -> None:
        with self._lane.active():
            begin = self._lane.mark()
            steps = self._steps(sequence_ids)
            end = self._lane.mark()
        self._in_flight.append(_Launch(steps, begin, end))
        self._waker.watch(end)
        self.counters["llm_launches"] = self.runner.graphs.num_launches

    def _steps(self, sequence_ids: Sequence[int]) -> list[LaunchedStep]:
        steps: list[LaunchedStep] = []
        num_steps = min(1 + len(sequence_ids) // _ROWS_PER_STEP, _MAX_STEPS)
        while sequence_ids and len(steps) < num_steps:
            steps.append(self.runner.launch(sequence_ids))
            self.counters["llm_steps"] += 1
            self.counters["llm_rows"] += len(sequence_ids)
            sequence_ids = [each for each in sequence_ids if self.runner.is_runnable(each)]
        return steps

    def poll(self) -> list[SequenceOutput]:
        outputs: list[SequenceOutput] = []
        while self._in_flight and self._in_flight[0].end.is_reached:
            launch = self._in_flight.popleft()
            self.counters["llm_seconds"] += launch.end.seconds_since(launch.begin)
            outputs += launch.outputs()
        return outputs

    @property
    def is_busy(self) -> bool:
        return bool(self._in_flight)

    def wait(self) -> None:
        if self._in_flight:
            self._in_flight[-1].end.wait()

    def close(self) -> None:
        pass


def _behind(old: SequenceOutput, new: SequenceOutput) -> SequenceOutput:
    tokens = old.tokens + new.tokens
    return SequenceOutput(new.sequence_id, tokens, new.is_final, new.is_truncated, new.error, new.is_paused)
