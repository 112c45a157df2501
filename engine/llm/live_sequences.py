"""The half of LlmRunner that every runner of ours shares: live sequences, the slots that they hold, their limits.

No torch. What is fed and sampled is the runner's; what comes next and what a token means is each sequence's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from voicegate.engine.llm.backend import (
    InvalidRequest,
    OneAtATime,
    SequenceOutput,
    SequenceRequest,
    UnknownSequence,
)
from voicegate.engine.llm.bistream import BistreamPolicy
from voicegate.engine.llm.feed import SequenceState, check_text_ids
from voicegate.engine.llm.requests import growing, make_sequence, streaming
from voicegate.engine.llm.sequence import Growing, LlmSequence
from voicegate.engine.llm.slots import Slots
from voicegate.engine.model.config import LlmConfig


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


class LiveSequences(OneAtATime):
    """See LlmRunner for the promises."""

    def __init__(
        self, config: LlmConfig, *, num_slots: int, max_positions: int, policy: BistreamPolicy = BistreamPolicy.ROBUST
    ) -> None:
        """`max_positions` per slot: prompt, text and speech of one sequence."""
        self._config = config
        self._policy = policy
        self._max_positions = min(max_positions, config.max_positions)
        self._slots = Slots(num_slots)
        self._lives: dict[int, Live] = {}

    @property
    def num_free_slots(self) -> int:
        return len(self._slots.free)

    @property
    def free_slots(self) -> list[int]:
        """What they hold nobody will read."""
        return list(self._slots.free)

    def slot_of(self, sequence_id: int) -> int:
        """Raises KeyError for a sequence that is not alive."""
        return self._lives[sequence_id].slot

    def add(self, request: SequenceRequest) -> None:
        if request.sequence_id in self._lives:
            raise InvalidRequest(f"sequence {request.sequence_id} is alive already")
        sequence = make_sequence(self._config, request, self._policy)
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
        sequence.read(tuple(text_ids), until=until)
        if sequence.feed is not None and sequence.feed.num_kept is not None:
            self._slots.lengths[live.slot] = sequence.feed.num_kept

    def abort(self, sequence_id: int) -> None:
        live = self._lives.pop(sequence_id, None)
        if live is not None:
            live.is_gone = True
            self._slots.free.append(live.slot)

    def is_runnable(self, sequence_id: int) -> bool:
        live = self._lives.get(sequence_id)
        return live is not None and live.sequence.state is not SequenceState.WAITING

    def _runnable(self, sequence_ids: Sequence[int]) -> list[Live]:
        """Raises UnknownSequence."""
        can_run = self.are_runnable(sequence_ids)
        if not all(can_run):
            wrong = [sequence_id for sequence_id, can in zip(sequence_ids, can_run, strict=True) if not can]
            raise UnknownSequence(f"these sequences have ended, never were, wait for text or for a step: {wrong}")
        if len(set(sequence_ids)) != len(sequence_ids):
            raise UnknownSequence(f"a sequence is named twice: {list(sequence_ids)}")
        return [self._lives[sequence_id] for sequence_id in sequence_ids]

    def _lack_of_room(self, live: Live, num_items: int) -> str | None:
        """Why so many more cannot be fed; None: they can."""
        if self._slots.lengths[live.slot] + num_items <= self._max_positions:
            return None
        return f"text and speech need more than the {self._max_positions} positions of an LLM slot"

    def _output(self, live: Live, emitted: tuple[int, ...] = (), *, error: str | None = None) -> SequenceOutput:
        """What has become of a sequence, which is let go if it has ended. `emitted`: its new speech."""
        sequence = live.sequence
        error = error or sequence.failure
        is_truncated = sequence.state is SequenceState.TRUNCATED
        is_final = is_truncated or sequence.state is SequenceState.FINISHED
        if is_final or error:
            self.abort(live.sequence_id)
        is_paused = isinstance(sequence, Growing) and sequence.state is SequenceState.WAITING
        return SequenceOutput(live.sequence_id, emitted, is_final, is_truncated, error, is_paused)
