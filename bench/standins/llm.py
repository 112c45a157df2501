"""An LLM that says so many speech tokens a text token, pseudo-random by seed and place, silent runs among them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, cast

from voicegate.bench.standins import NO_COSTS, Costs
from voicegate.engine.device.capture import NOTHING_TO_CAPTURE
from voicegate.engine.llm.backend import SequenceOutput, SequenceRequest
from voicegate.engine.llm.runner import MAX_STEPS_OF_ONE, Live, LlmRunner
from voicegate.engine.model.config import LlmConfig

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
    num_tokens: int = 0
    held: list[int] = field(default_factory=list)  # tokens that were not told of
    tell_after: int = 1
    is_spent: bool = False  # this reading is over: all that it knew is said

    def feed(self) -> None:
        """The next step computes what is new before the speech, and what stands behind the text once more."""
        num_lines = self.num_before + self.num_text_tokens
        self.num_to_feed = num_lines - self.num_stored + self.num_behind + self.num_tokens
        self.num_stored = num_lines

    def give(self) -> tuple[int, ...]:
        held, self.held, self.tell_after = tuple(self.held), [], 1
        return held


def _of(live: Live) -> _Sequence:
    return cast(_Sequence, live.sequence)


class HollowRunner(LlmRunner):
    graphs = NOTHING_TO_CAPTURE

    def __init__(
        self,
        config: LlmConfig,
        *,
        num_slots: int,
        tokens_per_text_token: float = 4,
        silent_tokens: Sequence[int] = (),
        holds_back: bool = True,
        costs: Costs = NO_COSTS,
    ) -> None:
        """`silent_tokens`: said in the last ten of each forty. `holds_back`: tokens that nobody needs yet."""
        super().__init__(config, costs.llm_lane, num_slots=num_slots, max_positions=_NO_LIMIT)
        self.num_reprefills = 0  # of growing text
        self.num_prompt_lines = 0
        self.num_last_rows = 0
        self._tokens_per_text_token = tokens_per_text_token
        self._silent_tokens = sorted(silent_tokens)
        self._holds_back = holds_back
        self._costs = costs

    def _named(self, sequence_id: int) -> _Sequence | None:
        live = self._lives.get(sequence_id)
        return None if live is None else _of(live)

    @property
    def sequences(self) -> dict[int, _Sequence]:
        """Those that are alive."""
        return {sequence_id: _of(live) for sequence_id, live in self._lives.items()}

    # --- sequences --------------------------------------------------------------------------------------------

    def add(self, request: SequenceRequest) -> None:
        slot = self._slots.allocate(request.seed)
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
        self._lives[request.sequence_id] = Live(request.sequence_id, cast(Any, sequence), slot)

    def push_text(self, sequence_id: int, text_ids: Sequence[int]) -> None:
        if (sequence := self._named(sequence_id)) is not None:
            sequence.num_text_tokens += len(text_ids)

    def end_text(self, sequence_id: int) -> None:
        if (sequence := self._named(sequence_id)) is not None:
            sequence.is_text_complete = True

    def read(self, sequence_id: int, text_ids: Sequence[int], *, until: int | None) -> None:
        if (sequence := self._named(sequence_id)) is not None:
            self.num_reprefills += 1
            sequence.num_text_tokens = len(text_ids)
            sequence.is_text_complete = until is None
            sequence.until = until or 0
            sequence.is_spent = False
            sequence.feed()

    # --- steps ------------------------------------------------------------------------------------------------

    def _can_launch(self, live: Live) -> bool:
        sequence = _of(live)
        is_full = live.num_in_flight == MAX_STEPS_OF_ONE or (sequence.num_to_feed and live.num_in_flight)
        if is_full or sequence.is_spent:
            return False
        return sequence.is_text_complete or sequence.num_launched < self._num_sayable(sequence)

    def _num_sayable(self, sequence: _Sequence) -> int:
        """While more text follows. Of a growing one only its output tells that all is said."""
        return sequence.until if sequence.is_growing else self._num_said(sequence)

    def _num_said(self, sequence: _Sequence) -> int:
        return round(self._tokens_per_text_token * sequence.num_text_tokens)

    def _begin(self, lives: Sequence[Live]) -> Callable[[], list[SequenceOutput]]:
        """Its output is known when it is fetched, as from a device."""
        num_lines = 0
        for live in lives:
            sequence = _of(live)
            num_lines += sequence.num_to_feed
            sequence.num_to_feed = 0
            sequence.num_launched += 1
            live.num_in_flight += 1
        self._costs.llm_step(len(lives), num_lines)
        self.num_prompt_lines += num_lines
        self.num_last_rows = len(lives)
        return partial(self._outputs, lives)

    @property
    def num_done_rows(self) -> int:
        """Rows of steps that are done and have not been fetched."""
        return sum(step.num_rows for step in self._in_flight if step.end.is_reached)

    def _outputs(self, lives: Sequence[Live]) -> list[SequenceOutput]:
        outputs = []
        for live in lives:
            live.num_in_flight -= 1
            if not live.is_gone:
                output = self.advance(live.sequence_id, _of(live))
                if output is not None and output.is_spent and live.num_in_flight:
                    output = replace(output, is_paused=False, is_spent=False)  # the last step on its way tells it
                if output is not None:
                    outputs.append(output)
        return outputs

    def tell_after(self, sequence_id: int, num_tokens: int) -> None:
        """As our CUDA runner it keeps none of a bistream pass, which may lack text at any token."""
        sequence = self._named(sequence_id)
        if self._holds_back and sequence is not None and not sequence.is_streaming:
            sequence.tell_after = num_tokens

    def take_held(self, sequence_id: int) -> tuple[int, ...]:
        sequence = self._named(sequence_id)
        return () if sequence is None else sequence.give()

    def advance(self, sequence_id: int, sequence: _Sequence) -> SequenceOutput | None:
        """By one token, or to its end."""
        is_truncated = sequence.num_tokens == sequence.max_tokens
        if is_truncated or (sequence.is_text_complete and sequence.num_tokens >= self._num_said(sequence)):
            self.abort(sequence_id)
            return SequenceOutput(sequence_id, sequence.give(), is_final=True, is_truncated=is_truncated)
        is_growing = sequence.is_growing and not sequence.is_text_complete
        if is_growing and (sequence.is_spent or sequence.num_tokens >= self._num_said(sequence)):
            sequence.is_spent, sequence.num_launched = True, sequence.num_tokens
            return SequenceOutput(sequence_id, sequence.give(), is_paused=True, is_spent=True)
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
