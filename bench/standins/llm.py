"""An LLM that says so many speech tokens a text token, pseudo-random by seed and place, silent runs among them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from voicegate.bench.standins import NO_COSTS, Costs
from voicegate.engine.device.capture import NOTHING_TO_CAPTURE
from voicegate.engine.device.lanes import Mark
from voicegate.engine.llm.backend import NoFreeSlot, OneAtATime, SequenceOutput, SequenceRequest
from voicegate.engine.llm.runner import MAX_STEPS_OF_ONE

_NO_LIMIT: Final = 10_000


@dataclass(slots=True)
class _Sequence:
    seed: int
    num_text_tokens: int
    is_text_complete: bool
    max_tokens: int
    is_growing: bool
    is_streaming: bool
    num_before: int  # lines before the text
    num_behind: int  # lines between text and speech: they are fed again at each reading
    num_stored: int = 0  # of the lines before the speech
    num_to_feed: int = 0  # of a reading that has not been launched; 0: it decodes
    until: int = 0  # speech tokens of a growing text's reading, while more text follows
    num_launched: int = 0
    num_in_flight: int = 0
    num_tokens: int = 0
    held: list[int] = field(default_factory=list)  # tokens that were not told of
    tell_after: int = 1

    def feed(self) -> None:
        """The next step computes what is new before the speech, and what stands behind the text once more."""
        num_lines = self.num_before + self.num_text_tokens
        self.num_to_feed = num_lines - self.num_stored + self.num_behind + self.num_tokens
        self.num_stored = num_lines

    def give(self) -> tuple[int, ...]:
        held, self.held, self.tell_after = tuple(self.held), [], 1
        return held


class _Step:
    """A LaunchedStep: what it makes is known when somebody fetches it, as from a device."""

    def __init__(self, runner: "HollowRunner", rows: list[tuple[int, _Sequence]], mark: Mark) -> None:
        self.num_rows = len(rows)
        self._runner = runner
        self._rows = rows
        self._mark = mark
        self._outputs: list[SequenceOutput] | None = None

    @property
    def is_done(self) -> bool:
        return self._mark.is_reached

    def outputs(self) -> list[SequenceOutput]:
        if self._outputs is None:
            self._outputs = self._runner.fetch(self, self._rows)
        return self._outputs


class HollowRunner(OneAtATime):
    """Implements LlmRunner."""

    graphs = NOTHING_TO_CAPTURE

    def __init__(
        self,
        *,
        num_slots: int,
        tokens_per_text_token: float = 4,
        silent_tokens: Sequence[int] = (),
        holds_back: bool = True,
        costs: Costs = NO_COSTS,
    ) -> None:
        """`silent_tokens`: said in the last ten of each forty. `holds_back`: tokens that nobody needs yet."""
        self.num_readings = 0  # of growing text
        self.num_prompt_lines = 0
        self.num_last_rows = 0
        self._num_slots = num_slots
        self._tokens_per_text_token = tokens_per_text_token
        self._silent_tokens = sorted(silent_tokens)
        self._holds_back = holds_back
        self._costs = costs
        self._sequences: dict[int, _Sequence] = {}
        self._unfetched: list[_Step] = []

    # --- sequences --------------------------------------------------------------------------------------------

    @property
    def num_free_slots(self) -> int:
        return self._num_slots - len(self._sequences)

    def add(self, request: SequenceRequest) -> None:
        if not self.num_free_slots:
            raise NoFreeSlot("every slot is taken")
        sequence = _Sequence(
            request.seed,
            len(request.text_ids),
            is_text_complete=not (request.is_streaming or request.is_growing),
            max_tokens=request.max_tokens or _NO_LIMIT,
            is_growing=request.is_growing,
            is_streaming=request.is_streaming,
            num_before=len(request.prompt.text_ids) + 1,  # sos
            num_behind=len(request.prompt.speech_ids) + 1,  # task
        )
        if not request.is_growing:  # of a growing text nothing is stored before its first reading
            sequence.feed()
        self._sequences[request.sequence_id] = sequence

    def push_text(self, sequence_id: int, text_ids: Sequence[int]) -> None:
        if (sequence := self._sequences.get(sequence_id)) is not None:
            sequence.num_text_tokens += len(text_ids)

    def end_text(self, sequence_id: int) -> None:
        if (sequence := self._sequences.get(sequence_id)) is not None:
            sequence.is_text_complete = True

    def read(self, sequence_id: int, text_ids: Sequence[int], *, until: int | None) -> None:
        if (sequence := self._sequences.get(sequence_id)) is not None:
            self.num_readings += 1
            sequence.num_text_tokens = len(text_ids)
            sequence.is_text_complete = until is None
            sequence.until = until or 0
            sequence.feed()

    def abort(self, sequence_id: int) -> None:
        self._sequences.pop(sequence_id, None)

    # --- steps ------------------------------------------------------------------------------------------------

    def is_runnable(self, sequence_id: int) -> bool:
        sequence = self._sequences.get(sequence_id)
        if sequence is None or sequence.num_in_flight == MAX_STEPS_OF_ONE:
            return False
        if sequence.num_to_feed and sequence.num_in_flight:
            return False
        return sequence.is_text_complete or sequence.num_launched < self._num_sayable(sequence)

    def _num_sayable(self, sequence: _Sequence) -> int:
        """While more text follows."""
        return sequence.until if sequence.is_growing else self._num_said(sequence)

    def _num_said(self, sequence: _Sequence) -> int:
        return round(self._tokens_per_text_token * sequence.num_text_tokens)

    def launch(self, sequence_ids: Sequence[int]) -> _Step:
        rows = [(sequence_id, self._sequences[sequence_id]) for sequence_id in sequence_ids]
        num_lines = sum(sequence.num_to_feed for _, sequence in rows)
        for _, sequence in rows:
            sequence.num_to_feed = 0
            sequence.num_launched += 1
            sequence.num_in_flight += 1
        self._costs.llm_step(len(rows), num_lines)
        self.num_prompt_lines += num_lines
        self.num_last_rows = len(rows)
        step = _Step(self, rows, self._costs.llm_lane.mark())
        self._unfetched.append(step)
        return step

    def step(self, sequence_ids: Sequence[int]) -> list[SequenceOutput]:
        return self.launch(sequence_ids).outputs()

    @property
    def num_done_rows(self) -> int:
        """Rows of steps that are done and have not been fetched."""
        return sum(step.num_rows for step in self._unfetched if step.is_done)

    def fetch(self, step: _Step, rows: Sequence[tuple[int, _Sequence]]) -> list[SequenceOutput]:
        self._unfetched.remove(step)
        outputs = []
        for sequence_id, sequence in rows:
            sequence.num_in_flight -= 1
            if self._sequences.get(sequence_id) is sequence:
                output = self.advance(sequence_id, sequence)
                if output is not None:
                    outputs.append(output)
        return outputs

    def tell_after(self, sequence_id: int, num_tokens: int) -> None:
        """As our CUDA runner it keeps none of a bistream pass, which may lack text at any token."""
        sequence = self._sequences.get(sequence_id)
        if self._holds_back and sequence is not None and not sequence.is_streaming:
            sequence.tell_after = num_tokens

    def take_held(self, sequence_id: int) -> tuple[int, ...]:
        sequence = self._sequences.get(sequence_id)
        return () if sequence is None else sequence.give()

    def advance(self, sequence_id: int, sequence: _Sequence) -> SequenceOutput | None:
        """By one token, or to its end."""
        is_truncated = sequence.num_tokens == sequence.max_tokens
        if is_truncated or (sequence.is_text_complete and sequence.num_tokens >= self._num_said(sequence)):
            self.abort(sequence_id)
            return SequenceOutput(sequence_id, sequence.give(), is_final=True, is_truncated=is_truncated)
        sequence.num_tokens += 1
        sequence.held.append(self._token(sequence))
        is_paused = sequence.num_tokens == sequence.until
        if len(sequence.held) < sequence.tell_after and not is_paused:
            return None
        return SequenceOutput(sequence_id, sequence.give(), is_paused=is_paused)

    def _token(self, sequence: _Sequence) -> int:
        place = sequence.num_tokens
        if self._silent_tokens and 20 <= place % 40 < 30:
            return self._silent_tokens[place % len(self._silent_tokens)]
        return (sequence.seed * 7919 + place * 104_729) % 6000 + 100
