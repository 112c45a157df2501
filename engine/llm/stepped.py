"""A backend whose steps the engine chooses: a runner of ours on its lane, launched a little ahead."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from voicegate.engine.device.lanes import Lane, Mark
from voicegate.engine.device.watcher import NO_WAKER, Waker
from voicegate.engine.llm.backend import LlmTraits, SequenceOutput, SequenceRequest
from voicegate.engine.llm.runner import MAX_STEPS_OF_ONE, LaunchedStep, LlmRunner

# Launched but not fetched. More would only let a cancel or a newcomer wait longer; fewer would let a GPU wait for
# Python between steps.
_MAX_STEPS_IN_FLIGHT: Final = 2


def takes_step_behind(rows_in_flight: Sequence[int]) -> bool:
    """Whether another step may be launched behind those with so many rows each."""
    is_lone = all(num_rows == 1 for num_rows in rows_in_flight)
    return len(rows_in_flight) < (MAX_STEPS_OF_ONE if is_lone else _MAX_STEPS_IN_FLIGHT)


@dataclass(frozen=True, slots=True)
class _StepInFlight:
    launched: LaunchedStep
    sequence_ids: tuple[int, ...]
    begin: Mark
    end: Mark


class SteppedLlm:
    """An LlmBackend. On a CPU a step is done when `launch` returns."""

    traits = LlmTraits(takes_streamed_text=True, is_reproducible=True)

    def __init__(self, runner: LlmRunner, lane: Lane) -> None:
        self.runner = runner
        self.counters: defaultdict[str, float] = defaultdict(float)
        self.num_fetched = 0  # steps
        self._lane = lane
        self._waker: Waker = NO_WAKER
        self._in_flight: deque[_StepInFlight] = deque()

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
        return takes_step_behind([len(step.sequence_ids) for step in self._in_flight])

    def is_runnable(self, sequence_id: int) -> bool:
        return self.runner.is_runnable(sequence_id)

    def are_runnable(self, sequence_ids: Sequence[int]) -> Sequence[bool]:
        return self.runner.are_runnable(sequence_ids)

    def tell_after(self, sequence_id: int, num_tokens: int) -> None:
        self.runner.tell_after(sequence_id, num_tokens)

    def take_held(self, sequence_id: int) -> tuple[int, ...]:
        return self.runner.take_held(sequence_id)

    def launch(self, sequence_ids: Sequence[int]) -> None:
        with self._lane.active():
            last = self._in_flight[-1].end if self._in_flight else None
            # Behind a step that still runs this one begins at its end: another mark would say the same.
            begin = last if last is not None and not last.is_reached else self._lane.mark()
            launched = self.runner.launch(sequence_ids)
            end = self._lane.mark()
        self._in_flight.append(_StepInFlight(launched, tuple(sequence_ids), begin, end))
        self._waker.watch(end)
        self.counters["llm_steps"] += 1
        self.counters["llm_rows"] += len(sequence_ids)
        self.counters["llm_launches"] = self.runner.graphs.num_launches

    def poll(self) -> list[SequenceOutput]:
        outputs: list[SequenceOutput] = []
        while self._in_flight and self._in_flight[0].end.is_reached:
            step = self._in_flight.popleft()
            self.num_fetched += 1
            self.counters["llm_seconds"] += step.end.seconds_since(step.begin)
            outputs += step.launched.outputs()
        return outputs

    @property
    def is_busy(self) -> bool:
        return bool(self._in_flight)

    def wait(self) -> None:
        if self._in_flight:
            self._in_flight[-1].end.wait()

    def close(self) -> None:
        pass
