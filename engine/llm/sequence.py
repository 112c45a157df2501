"""The pure state machines of one sequence: its next feed, and the meaning of its tokens. No torch, no sampling.

All kinds show the next forward as `feed` and take the token that was sampled from it through `advance`.
Layouts and quirks are upstream's (cosyvoice/llm/llm.py: Qwen2LM.inference, inference_bistream).
"""

import numpy as np

from voicegate.engine.llm.backend import InvalidRequest, LlmPrompt, SequenceRequest
from voicegate.engine.llm.bistream import Bistream
from voicegate.engine.llm.feed import (
    Feed,
    Rows,
    SequenceState,
    audible,
    check_instruction,
    check_text_ids,
    ends_speech,
    prompt_rows,
    speech_rows,
    text_rows,
)
from voicegate.engine.model.config import LlmConfig


class Unistream:
    """All text known from the start: [sos, prompt text, text, task, prompt speech], then speech tokens until a stop."""

    def __init__(
        self, config: LlmConfig, prompt: LlmPrompt, text_ids: tuple[int, ...], *, max_tokens: int | None = None
    ) -> None:
        """Raises InvalidRequest where the model wants <|endofprompt|> and neither text has it."""
        around = prompt_rows(config, prompt)
        if not around.is_instructed:
            check_instruction(config, text_ids)
        self.decoded: list[int] = []  # what the sampler's repetition window looks at
        self.failure: str | None = None
        self._config = config
        # Tokens before the first that may be eos by upstream's flag, and tokens at all.
        self.min_tokens = config.stop.min_tokens_per_text_token * len(text_ids)
        max_length = config.stop.max_length(len(text_ids))
        self.max_tokens = max_length if max_tokens is None else min(max_length, max_tokens)
        # Fed before the first token.
        self.layout = np.concatenate((around.before_text, text_rows(text_ids), around.behind_text))
        self.feed: Feed | None = Feed(self.layout, ignore_eos=self.min_tokens > 0) if text_ids else None
        self.state = SequenceState.RUNNABLE if text_ids else SequenceState.FINISHED

    def advance(self, token: int | None) -> int | None:
        """Take the token sampled from `feed`; returns it where it is speech."""
        assert token is not None, "unistream never forces a fill"
        self.feed = None
        if ends_speech(self._config, token):
            self.state = SequenceState.FINISHED
            return None
        self.decoded.append(token)
        if len(self.decoded) == self.max_tokens:
            self.state = SequenceState.TRUNCATED
        else:
            self.feed = Feed(speech_rows(self._config, (token,)), ignore_eos=len(self.decoded) < self.min_tokens)
        return audible(self._config, token)


class Growing:
    """A text that is still being written: read anew, behind what was spoken, each time with all that is known of it.

    A reading is laid out as unistream, the tokens spoken so far behind the prompt's: [sos, prompt text, text, task,
    prompt speech, speech]. The sampler's window goes on across readings, and so does the random stream. What is said
    depends on the seed and on the text known at each reading. Where the model ends the speech while more text follows,
    it has said what it knows. The reading pauses there, and the next one has another random stream.
    """

    def __init__(self, config: LlmConfig, prompt: LlmPrompt, *, max_tokens: int | None = None) -> None:
        self.decoded: list[int] = []  # what the sampler's repetition window looks at
        self.failure: str | None = None
        self.state = SequenceState.WAITING
        self.min_tokens = 0
        self.max_tokens = 0  # in all: where this reading pauses, or where the speech is cut off
        self.is_spent = False  # the model ended this reading: all that it knew is said
        self._num_unheard = 0  # ids that were drawn and are no speech
        self._config = config
        self._around = prompt_rows(config, prompt)
        self._text_ids: tuple[int, ...] = ()  # of the last reading
        self._limit = max_tokens
        self._is_complete = False
        self.layout: Rows = text_rows(())  # what the last reading fed before its first token
        self._num_kept: int | None = None  # of what was fed before that, until its first token is there

    def read(self, text_ids: tuple[int, ...], *, until: int | None) -> None:
        """Go on with this text for the one before, up to `until` speech tokens in all; None: it is complete.

        Raises InvalidRequest where it runs or has been completed, where `until` leaves nothing to say, without text,
        and as Unistream.
        """
        if self.state is not SequenceState.WAITING:
            raise InvalidRequest("a growing sequence is read again when its reading has paused, not before")
        if not text_ids:
            raise InvalidRequest("a growing sequence cannot be read without text")
        num_spoken = len(self.decoded) - self._num_unheard
        if until is not None and until <= num_spoken:
            raise InvalidRequest(f"{num_spoken} tokens are spoken; a reading until {until} would add none")
        if not self._around.is_instructed:
            check_instruction(self._config, text_ids)
        self._is_complete = until is None
        self.is_spent = False
        stop = self._config.stop
        self.min_tokens = stop.min_tokens_per_text_token * len(text_ids) if self._is_complete else 0
        pause = None if until is None else until + self._num_unheard
        limits = (pause, self._limit, stop.max_length(len(text_ids)) if self._is_complete else None)
        self.max_tokens = min(limit for limit in limits if limit is not None)
        if len(self.decoded) >= self.max_tokens:  # the limit is behind: nothing more is said
            self.state = SequenceState.TRUNCATED
            return
        num_before = len(self.layout)
        spoken = speech_rows(self._config, self.decoded)
        self.layout = np.concatenate((self._around.before_text, text_rows(text_ids), self._around.behind_text, spoken))
        self._num_kept = self._num_common(text_ids, num_before)
        self._text_ids = text_ids
        self.state = SequenceState.RUNNABLE

    def _num_common(self, text_ids: tuple[int, ...], num_before: int) -> int:
        """How many rows the layout shares with the one before, of so many; never all: the last is sampled from."""
        if not num_before:
            return 0
        if text_ids == self._text_ids:
            return min(num_before, len(self.layout) - 1)
        pairs = zip(self._text_ids, text_ids, strict=False)
        num_shorter = min(len(self._text_ids), len(text_ids))
        num_text = next((index for index, (one, other) in enumerate(pairs) if one != other), num_shorter)
        return len(self._around.before_text) + num_text

    @property
    def feed(self) -> Feed | None:
        """Made when it is asked for: a device that feeds itself what it drew asks at readings alone."""
        if self.state is not SequenceState.RUNNABLE:
            return None
        is_reprefill = self._num_kept is not None
        return Feed(
            self.layout[self._num_kept :] if is_reprefill else speech_rows(self._config, self.decoded[-1:]),
            ignore_eos=len(self.decoded) < self.min_tokens,
            num_kept=self._num_kept,
        )

    def advance(self, token: int | None) -> int | None:
        """Take the token sampled from `feed`; returns it where it is speech."""
        assert token is not None, "growing never forces a fill"
        self._num_kept = None
        if ends_speech(self._config, token):
            self.state = SequenceState.FINISHED if self._is_complete else SequenceState.WAITING
            self.is_spent = not self._is_complete
            return None
        self.decoded.append(token)
        if len(self.decoded) >= self.max_tokens:
            is_cut = self._is_complete or self.max_tokens == self._limit
            self.state = SequenceState.TRUNCATED if is_cut else SequenceState.WAITING
        heard = audible(self._config, token)
        self._num_unheard += heard is None
        return heard


LlmSequence = Unistream | Growing | Bistream


def make_sequence(config: LlmConfig, request: SequenceRequest) -> LlmSequence:
    """All backends ask this before a request takes a slot. Raises InvalidRequest for what the model cannot do."""
    if request.max_tokens is not None and request.max_tokens < 1:
        raise InvalidRequest(f"max_tokens is {request.max_tokens}; it must be at least 1")
    check_text_ids(config, request.text_ids)
    prompt_rows(config, request.prompt)  # which looks at its ids, once for all that is said behind it
    if request.is_growing:
        return Growing(config, request.prompt, max_tokens=request.max_tokens)
    if not request.is_streaming:
        return Unistream(config, request.prompt, request.text_ids, max_tokens=request.max_tokens)
    sequence = Bistream(config, request.prompt, max_tokens=request.max_tokens)
    sequence.push_text(request.text_ids)
    return sequence


def streaming(sequence_id: int, sequence: LlmSequence) -> Bistream:
    """Raises InvalidRequest for a sequence whose text was complete from the start."""
    if not isinstance(sequence, Bistream):
        raise InvalidRequest(f"sequence {sequence_id} is not streaming: its text was complete from the start")
    return sequence


def growing(sequence_id: int, sequence: LlmSequence) -> Growing:
    """Raises InvalidRequest for a sequence of another kind."""
    if not isinstance(sequence, Growing):
        raise InvalidRequest(f"sequence {sequence_id} is not growing: it is not read again")
    return sequence
