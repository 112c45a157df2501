"""One sequence as requests to an executor that takes whole prompts: legs. Pure: no threads, no clock, no package.

A text that grows takes a leg for each reading; its prefix is found again in the executor's cache. Ids are the merged
vocabulary's here (engine/model/qwen2.py), and the sequence's own state machine says what they mean.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from voicegate.engine.llm.backend import SequenceOutput, SequenceRequest
from voicegate.engine.llm.feed import SequenceState
from voicegate.engine.llm.sequence import Growing, Unistream
from voicegate.engine.llm.slots import seed_key
from voicegate.engine.model.config import LlmConfig
from voicegate.engine.model.qwen2 import MergedVocabulary


@dataclass(frozen=True, slots=True)
class Leg:
    """One request: a prompt, and at most so many tokens behind it."""

    prompt_ids: tuple[int, ...]
    max_tokens: int
    seed: int
    # For a sampler that goes on where the last leg's was.
    spoken: tuple[int, ...]  # speech tokens so far
    min_tokens: int  # of the sequence; see Unistream


@dataclass(frozen=True, slots=True)
class LegNews:
    """News of a leg from its executor. The last of it has a `finish_reason` or an `error`."""

    leg_id: int
    ids: tuple[int, ...] = ()
    finish_reason: str | None = None  # stop: an end id; length: max_tokens; others: it was not let
    error: str | None = None  # safe to show
    num_cached_tokens: int = 0  # of the prompt

    @property
    def is_last(self) -> bool:
        return self.finish_reason is not None or self.error is not None


class LeggedSequence:
    def __init__(
        self,
        request: SequenceRequest,
        sequence: Unistream | Growing,
        config: LlmConfig,
        vocabulary: MergedVocabulary,
        *,
        max_positions: int,
    ) -> None:
        self.sequence = sequence
        self.num_strays = 0  # ids that are no speech: text, rows of zeros
        self.sequence_id = request.sequence_id
        self._seed = request.seed
        self._config = config
        self._vocabulary = vocabulary
        self._max_positions = max_positions
        self._ids: list[int] = []  # all that was fed, speech included
        self._num_spoken_before = 0  # the running leg
        self._tokens: list[int] = []  # not told yet
        self._error: str | None = None
        self.lay_out()

    def lay_out(self) -> None:
        """Take over what the sequence feeds first: at its beginning, and whenever it has been read."""
        rows, first_speech_row = self.sequence.layout, self._config.vocab_size
        moved = rows + (self._vocabulary.first_speech_id - first_speech_row)
        self._ids = np.where(rows < first_speech_row, rows, moved).tolist()

    def next_leg(self) -> Leg | None:
        """The next leg to ask for; None: nothing, it has ended or waits. It may have ended for lack of room."""
        if self.sequence.state is not SequenceState.RUNNABLE or self._error is not None:
            return None
        room = self._max_positions - len(self._ids)
        if room < 1:
            self._error = f"text and speech need more than the {self._max_positions} positions of an LLM slot"
            return None
        self._num_spoken_before = len(self.sequence.decoded)
        return Leg(
            tuple(self._ids),
            max_tokens=min(self.sequence.max_tokens - self._num_spoken_before, room),
            seed=self._seed,
            spoken=tuple(self.sequence.decoded),
            min_tokens=self.sequence.min_tokens,
        )

    def take(self, news: LegNews) -> None:
        """Takes news of its running leg."""
        self._error = news.error
        self._take_ids(news.ids)
        if self.sequence.state is not SequenceState.RUNNABLE or self._error is not None:
            return
        match news.finish_reason:
            case None:
                pass
            case "stop":  # the end id itself is not always among the ids
                self._take_end(self._config.eos_id)
            case "length":  # some were strays: another leg, if this one got anywhere
                if len(self.sequence.decoded) == self._num_spoken_before:
                    self._error = "the LLM made no speech where more of it was due"
            case reason:
                self._error = f"the LLM's executor ended this sequence: {reason}"

    def _take_ids(self, ids: Iterable[int]) -> None:
        config = self._config
        for id_ in ids:
            if self.sequence.state is not SequenceState.RUNNABLE:
                return  # behind the end: it stops a step or two after we do
            token = id_ - self._vocabulary.first_speech_id
            if 0 <= token < config.speech_token_size:
                self.sequence.advance(token)
                self._ids.append(id_)
                self._tokens.append(token)
            elif config.speech_token_size <= token < config.num_speech_rows:
                self._take_end(token)
            else:
                self.num_strays += 1

    def _take_end(self, token: int) -> None:
        self.sequence.advance(token)
        if self.is_spent:
            self._seed = int(seed_key(self._seed))  # with the same one it might end there again

    @property
    def is_spent(self) -> bool:
        """Whether the model ended a reading while its text grows: what its leg makes now is nobody's."""
        return isinstance(self.sequence, Growing) and self.sequence.is_spent

    @property
    def has_ended(self) -> bool:
        return self._error is not None or self.sequence.state in (SequenceState.FINISHED, SequenceState.TRUNCATED)

    def output(self, *, is_leg_over: bool) -> SequenceOutput | None:
        """Output since the last call. A pause is told after its leg: only then its cache can be found."""
        state = self.sequence.state
        is_truncated = state is SequenceState.TRUNCATED
        is_final = self._error is None and (is_truncated or state is SequenceState.FINISHED)
        is_paused = self._error is None and state is SequenceState.WAITING and is_leg_over
        tokens, self._tokens = tuple(self._tokens), []
        if not (tokens or is_final or is_paused or self._error):
            return None
        is_spent = is_paused and self.is_spent
        is_cut = is_final and is_truncated
        return SequenceOutput(self.sequence_id, tokens, is_final, is_cut, self._error, is_paused, is_spent)
