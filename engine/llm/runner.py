"""The LLM whose steps the engine chooses: sequences in slots, and steps on a lane, launched a little ahead.

It implements LlmBackend. A subclass computes: on torch's operations (torch/runner.py), or on CUDA (cuda/runner.py).
What comes next in a sequence and what its tokens mean is the sequence's own. No torch here.
"""

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from voicegate.engine.device.capture import Capturable
from voicegate.engine.device.lanes import Lane, Mark
from voicegate.engine.device.watcher import NO_WAKER, Waker
from voicegate.engine.llm.backend import InvalidRequest, LlmTraits, SequenceOutput, SequenceRequest
from voicegate.engine.llm.feed import SequenceState, check_text_ids
from voicegate.engine.llm.sequence import Growing, LlmSequence, growing, make_sequence, streaming
from voicegate.engine.llm.slots import Slots
from voicegate.engine.model.config import LlmConfig

# Steps launched but not fetched. Higher -> a cancel or a new request waits longer; lower -> a GPU waits for Python
# between steps.
_MAX_STEPS_IN_FLIGHT: Final = 2
# While all of them are of one sequence alone: Python has slept while its prompt was read, and takes longer than a
# decode to wake up.
MAX_STEPS_OF_ONE: Final = 3


@dataclass(slots=True, eq=False)
class Live:
    """One sequence and the slot that it holds."""

    sequence_id: int
    sequence: LlmSequence
    slot: int
    is_gone: bool = False  # it has ended, or was aborted
    num_in_flight: int = 0  # steps launched whose outputs were not taken
    # Of one that a runner feeds what it has drawn, ahead of what the sequence knows:
    is_decoding: bool = False
    num_to_launch: int = 0  # more draws that it may have
    num_to_take: int = 0  # the same, of those launched too
    held: list[int] = field(default_factory=list)  # drawn, taken, and not told of
    tell_after: int = 1


@dataclass(frozen=True, slots=True)
class _StepInFlight:
    outputs: Callable[[], list[SequenceOutput]]
    num_rows: int
    begin: Mark
    end: Mark


class LlmRunner(ABC):
    """See LlmBackend for the promises. On a CPU a step is done when `launch` returns."""

    traits = LlmTraits(takes_streamed_text=True, is_reproducible=True)

    def __init__(self, config: LlmConfig, lane: Lane, *, num_slots: int, max_positions: int) -> None:
        """`max_positions` per slot: prompt, text and speech of one sequence."""
        self.counters: defaultdict[str, float] = defaultdict(float)
        self.num_fetched = 0  # steps
        self._config = config
        self._lane = lane
        self._max_positions = min(max_positions, config.max_positions)
        self._slots = Slots(num_slots)
        self._lives: dict[int, Live] = {}
        self._in_flight: deque[_StepInFlight] = deque()
        self._waker: Waker = NO_WAKER

    @property
    @abstractmethod
    def graphs(self) -> Capturable: ...

    @abstractmethod
    def _begin(self, lives: Sequence[Live]) -> Callable[[], list[SequenceOutput]]:
        """Begin one decode step (or prefill) of each of these, without waiting for the device.

        Returns what gives the step's outputs; it is called once, after those of earlier steps, and may wait. There is
        one output each, in order, without those that are gone by then and without tokens that are held back. An
        output may be empty: the step only fed text or closed a block of speech tokens. A sequence that fails (too long
        for its slot, say) says so in its own output and leaves the others as they would have been.
        """

    def _can_launch(self, live: Live) -> bool:
        """Whether a step of it may be begun, perhaps after others of it that are in flight."""
        return live.sequence.state is not SequenceState.WAITING

    def set_waker(self, waker: Waker) -> None:
        self._waker = waker

    # --- sequences --------------------------------------------------------------------------------------------

    @property
    def num_free_slots(self) -> int:
        return len(self._slots.free)

    def add(self, request: SequenceRequest) -> None:
        if request.sequence_id in self._lives:
            raise InvalidRequest(f"sequence {request.sequence_id} is alive already")
        sequence = make_sequence(self._config, request)
        slot = self._slots.allocate(request.seed)
        self._lives[request.sequence_id] = Live(request.sequence_id, sequence, slot)

    def push_text(self, sequence_id: int, text_ids: Sequence[int]) -> None:
        live = self._lives.get(sequence_id)
        if live is not None:
            check_text_ids(self._config, text_ids)
            streaming(sequence_id, live.sequence).push_text(text_ids)

    def end_text(self, sequence_id: int) -> None:
        live = self._lives.get(sequence_id)
        if live is not None:
            streaming(sequence_id, live.sequence).end_text()

    def read(self, sequence_id: int, text_ids: Sequence[int], *, until: int | None) -> None:
        live = self._lives.get(sequence_id)
        if live is None:
            return
        check_text_ids(self._config, text_ids)
        sequence = growing(sequence_id, live.sequence)
        was_spent = sequence.is_spent
        sequence.read(tuple(text_ids), until=until)
        if was_spent:
            self._slots.draw_anew(live.slot, len(sequence.decoded))
        if sequence.feed is not None and sequence.feed.num_kept is not None:
            self._slots.lengths[live.slot] = sequence.feed.num_kept

    def abort(self, sequence_id: int) -> None:
        live = self._lives.pop(sequence_id, None)
        if live is not None:
            live.is_gone = True
            self._slots.free.append(live.slot)

    def tell_after(self, sequence_id: int, num_tokens: int) -> None:  # noqa: B027 - it need not
        """It holds none back."""

    def take_held(self, sequence_id: int) -> tuple[int, ...]:
        return ()

    # --- steps ------------------------------------------------------------------------------------------------

    @property
    def takes_step(self) -> bool:
        num_steps = len(self._in_flight)
        if num_steps < _MAX_STEPS_IN_FLIGHT:
            return True
        return num_steps < MAX_STEPS_OF_ONE and all(step.num_rows == 1 for step in self._in_flight)

    def is_runnable(self, sequence_id: int) -> bool:
        live = self._lives.get(sequence_id)
        return live is not None and self._can_launch(live)

    def launch(self, sequence_ids: Sequence[int]) -> list[int]:
        get, can_launch = self._lives.get, self._can_launch
        lives = [live for each in sequence_ids if (live := get(each)) is not None and can_launch(live)]
        if lives:
            self._launch(lives)
        if len(lives) == len(sequence_ids):  # nearly always
            return []
        launched = {live.sequence_id for live in lives}
        return [sequence_id for sequence_id in sequence_ids if sequence_id not in launched]

    def _launch(self, lives: list[Live]) -> None:
        with self._lane.active():
            last = self._in_flight[-1].end if self._in_flight else None
            # After a step that still runs this one begins at its end: another mark would say the same.
            begin = last if last is not None and not last.is_reached else self._lane.mark()
            outputs = self._begin(lives)
            end = self._lane.mark()
        self._in_flight.append(_StepInFlight(outputs, len(lives), begin, end))
        self._waker.watch(end)
        self.counters["llm_steps"] += 1
        self.counters["llm_rows"] += len(lives)
        self.counters["llm_launches"] = self.graphs.num_launches

    def poll(self) -> list[SequenceOutput]:
        outputs: list[SequenceOutput] = []
        while self._in_flight and self._in_flight[0].end.is_reached:
            step = self._in_flight.popleft()
            self.num_fetched += 1
            self.counters["llm_seconds"] += step.end.seconds_since(step.begin)
            outputs += step.outputs()
        return outputs

    def step(self, sequence_ids: Sequence[int]) -> list[SequenceOutput]:
        """Launch and poll, for callers who wait for each step."""
        self.launch(sequence_ids)
        self.wait()
        return self.poll()

    @property
    def is_busy(self) -> bool:
        return bool(self._in_flight)

    def wait(self) -> None:
        if self._in_flight:
            self._in_flight[-1].end.wait()

    def close(self) -> None:  # noqa: B027 - nothing to do
        """It runs nothing by itself."""

    # --- for those who compute --------------------------------------------------------------------------------

    def _lack_of_room(self, live: Live, num_items: int) -> str | None:
        """Why so many more cannot be fed; None: they can."""
        if self._slots.lengths[live.slot] + num_items <= self._max_positions:
            return None
        return f"text and speech need more than the {self._max_positions} positions of an LLM slot"

    def _output(self, live: Live, emitted: tuple[int, ...] = (), *, error: str | None = None) -> SequenceOutput:
        """Tell the state of a sequence, which is let go if it has ended. `emitted`: its new speech."""
        sequence = live.sequence
        error = error or sequence.failure
        is_truncated = sequence.state is SequenceState.TRUNCATED
        is_final = is_truncated or sequence.state is SequenceState.FINISHED
        if is_final or error:
            self.abort(live.sequence_id)
        is_paused = is_spent = False
        if isinstance(sequence, Growing):
            is_paused, is_spent = sequence.state is SequenceState.WAITING, sequence.is_spent
        return SequenceOutput(live.sequence_id, emitted, is_final, is_truncated, error, is_paused, is_spent)
