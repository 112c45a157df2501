"""What to feed the LLM next and what its tokens mean: the pure state machines of one sequence. No torch, no sampling.

All kinds show the next forward as `feed` and take the token that was sampled from it through `advance`.
Layouts and quirks are upstream's (cosyvoice/llm/llm.py: Qwen2LM.inference, inference_bistream).
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from voicegate.engine.llm.backend import InvalidRequest, LlmPrompt
from voicegate.engine.model.config import LlmConfig


class Table(Enum):
    """Which embedding table an id belongs to."""

    TEXT = 0
    SPEECH = 1


class SequenceState(Enum):
    RUNNABLE = "runnable"
    WAITING = "waiting for text"
    FINISHED = "finished"
    TRUNCATED = "truncated"  # finished by a length limit
    FAILED = "failed"


class BistreamPolicy(Enum):
    """What bistream does where upstream raises or runs on.

    UPSTREAM: a special token other than fill inside a block, or other than eos at the end, fails the sequence;
    only `max_tokens` limits its length; whatever was fed last before a fill is fed again before the remaining text.

    ROBUST: a special token inside a block counts as fill, and any special token ends the final phase; the final
    phase is limited as a unistream sequence is; only a single speech token is fed again, never a whole text block
    (which upstream does where a block is closed before its first speech token); no text at all gives no speech;
    without prompt speech the first block waits for its text, as in training, where upstream speaks a block from the
    instruction alone; text too short to interleave the prompt speech is laid out as unistream, where upstream drops
    the rest of the prompt speech.

    Neither depends on when text arrives. Blocks are opened by text tokens, each looked at once and in order, and
    the final phase by the end of the text; how far decoding has got by then, and whether the end is already known
    while a block runs, changes nothing.
    """

    UPSTREAM = "upstream"
    ROBUST = "robust"


Item = tuple[Table, int]


@dataclass(frozen=True, slots=True)
class Feed:
    """One forward: `items` go behind what the sequence has been fed, then a token is sampled at the last position.

    `ignore_eos` is upstream's flag for the sampler (see RepetitionAwareSampler). `is_forced_fill`: nothing is
    sampled, the forward only stores the positions. `num_kept`: only so many of what was fed before stay, and `items` go
    behind these; None: all. `forbids_end`: none but speech ids can come up.
    """

    items: tuple[Item, ...]
    ignore_eos: bool
    is_forced_fill: bool = False
    num_kept: int | None = None
    forbids_end: bool = False


class Unistream:
    """All text known from the start: [sos, prompt text, text, task, prompt speech], then speech tokens until a stop."""

    def __init__(
        self, config: LlmConfig, prompt: LlmPrompt, text_ids: tuple[int, ...], *, max_tokens: int | None = None
    ) -> None:
        """Raises InvalidRequest where the model wants <|endofprompt|> and neither text has it."""
        text = prompt.text_ids + text_ids
        _check_instruction(config, text)
        self.decoded: list[int] = []  # what the sampler's repetition window looks at
        self.failure: str | None = None
        self._config = config
        # Tokens before the first that may be eos by upstream's flag, and tokens at all.
        self.min_tokens = config.stop.min_tokens_per_text_token * len(text_ids)
        max_length = config.stop.max_length(len(text_ids))
        self.max_tokens = max_length if max_tokens is None else min(max_length, max_tokens)
        items = (*_before_text(config, prompt), *_text_items(text_ids), *_behind_text(config, prompt))
        self.layout = items  # what is fed before the first token
        self.feed: Feed | None = Feed(items, ignore_eos=self.min_tokens > 0) if text_ids else None
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
            self.feed = Feed(((Table.SPEECH, token),), ignore_eos=len(self.decoded) < self.min_tokens)
        return _audible(self._config, token)


class Growing:
    """A text that is still being written: read anew, behind what was spoken, each time with all that is known of it.

    A reading is laid out as unistream, the tokens spoken so far behind the prompt's: [sos, prompt text, text, task,
    prompt speech, speech]. The sampler's window and its random stream go on across readings, so what is said depends
    on the seed and on the text known at each reading. While more text follows, the model cannot end the speech.
    """

    def __init__(self, config: LlmConfig, prompt: LlmPrompt, *, max_tokens: int | None = None) -> None:
        self.decoded: list[int] = []  # what the sampler's repetition window looks at
        self.failure: str | None = None
        self.state = SequenceState.WAITING
        self.min_tokens = 0
        self.max_tokens = 0  # in all: where this reading pauses, or where the speech is cut off
        self._config = config
        self._prompt = prompt
        self._before_text, self._behind_text = _before_text(config, prompt), _behind_text(config, prompt)
        self._text_ids: tuple[int, ...] = ()  # of the last reading
        self._limit = max_tokens
        self._is_complete = False
        self.layout: tuple[Item, ...] = ()  # what the last reading fed before its first token
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
        if until is not None and until <= len(self.decoded):
            raise InvalidRequest(f"{len(self.decoded)} tokens are spoken; a reading until {until} would add none")
        text = self._prompt.text_ids + text_ids
        _check_instruction(self._config, text)
        self._is_complete = until is None
        stop = self._config.stop
        self.min_tokens = stop.min_tokens_per_text_token * len(text_ids) if self._is_complete else 0
        limits = (until, self._limit, stop.max_length(len(text_ids)) if self._is_complete else None)
        self.max_tokens = min(limit for limit in limits if limit is not None)
        if len(self.decoded) >= self.max_tokens:  # the limit is behind: nothing more is said
            self.state = SequenceState.TRUNCATED
            return
        num_before = len(self.layout)
        self.layout = (
            *self._before_text,
            *_text_items(text_ids),
            *self._behind_text,
            *_speech_items(self.decoded),
        )
        self._num_kept = self._num_common(text_ids, num_before)
        self._text_ids = text_ids
        self.state = SequenceState.RUNNABLE

    def _num_common(self, text_ids: tuple[int, ...], num_before: int) -> int:
        """How many items the layout shares with the one before, of so many; never all: the last is sampled from."""
        if not num_before:
            return 0
        if text_ids == self._text_ids:
            return min(num_before, len(self.layout) - 1)
        pairs = zip(self._text_ids, text_ids, strict=False)
        num_shorter = min(len(self._text_ids), len(text_ids))
        num_text = next((index for index, (one, other) in enumerate(pairs) if one != other), num_shorter)
        return len(self._before_text) + num_text

    @property
    def feed(self) -> Feed | None:
        """Made when it is asked for: a device that feeds itself what it drew asks at readings alone."""
        if self.state is not SequenceState.RUNNABLE:
            return None
        is_reading = self._num_kept is not None
        return Feed(
            self.layout[self._num_kept :] if is_reading else ((Table.SPEECH, self.decoded[-1]),),
            ignore_eos=len(self.decoded) < self.min_tokens,
            num_kept=self._num_kept,
            forbids_end=not self._is_complete,
        )

    def advance(self, token: int | None) -> int | None:
        """Take the token sampled from `feed`; returns it where it is speech."""
        assert token is not None, "growing never forces a fill"
        self._num_kept = None
        if ends_speech(self._config, token):
            self.state = SequenceState.FINISHED
            return None
        self.decoded.append(token)
        if len(self.decoded) >= self.max_tokens:
            is_cut = self._is_complete or self.max_tokens == self._limit
            self.state = SequenceState.TRUNCATED if is_cut else SequenceState.WAITING
        return _audible(self._config, token)


class Bistream:
    """Text and speech interleaved, 5 : 15 for CosyVoice; speech begins before all text is there.

    Instruction first, where there is one; then blocks of text and prompt speech until the prompt is used up; then each
    block of text is answered by a block of speech tokens that ends with fill; the rest of the text and `task` open the
    final phase.
    Upstream's habits kept under every policy: the fill token is never fed (nor was it in training); the last speech
    token of the last block is fed again before the remaining text.
    """

    def __init__(
        self,
        config: LlmConfig,
        prompt: LlmPrompt,
        *,
        policy: BistreamPolicy = BistreamPolicy.ROBUST,
        max_tokens: int | None = None,
    ) -> None:
        """Raises InvalidRequest where the model wants <|endofprompt|> and the prompt text lacks it."""
        _check_instruction(config, prompt.text_ids)
        end_id = config.end_of_prompt_id
        has_instruction = end_id is not None and end_id in prompt.text_ids
        instruction_end = prompt.text_ids.index(end_id) + 1 if has_instruction else 0
        self.decoded: list[int] = []  # what the sampler's repetition window looks at: speech and fill tokens
        self.feed: Feed | None = None
        self.state = SequenceState.WAITING
        self.failure: str | None = None
        self._config = config
        self._policy = policy
        self._max_tokens = max_tokens
        self._num_emitted = 0
        self._num_text_tokens = 0
        self._inbox: deque[int] = deque()  # text that has not been looked at
        self._is_text_ended = False
        self._text = list(prompt.text_ids[instruction_end:])  # looked at, not fed
        self._prompt_speech = list(prompt.speech_ids)
        # Upstream's lm_input: gathered for the next forward, or what the last forward before a fill was fed.
        self._input: list[Item] = [(Table.SPEECH, config.sos_id), *_text_items(prompt.text_ids[:instruction_end])]
        block_tokens = config.mix_ratio[1]
        self._next_fill = block_tokens - len(prompt.speech_ids) % block_tokens  # index into `decoded`
        self._is_in_final_phase = False
        self._waits_for_first_text = policy is BistreamPolicy.ROBUST and not prompt.speech_ids

    def push_text(self, text_ids: Iterable[int]) -> None:
        """Append text. Raises InvalidRequest after `end_text`."""
        if self._is_text_ended:
            raise InvalidRequest("text was pushed after its end")
        self._inbox.extend(text_ids)
        if self.state is SequenceState.WAITING:
            self._read_text()

    def end_text(self) -> None:
        """No more text follows. Idempotent."""
        self._is_text_ended = True
        if self.state is SequenceState.WAITING:
            self._read_text()

    def advance(self, token: int | None) -> int | None:
        """Take the token sampled from `feed`, None where that is a forced fill; returns it where it is speech."""
        assert self.feed is not None
        assert self.feed.is_forced_fill == (token is None)
        self.feed = None
        if token is not None and token < self._config.speech_token_size:
            return self._advance_speech(token)
        if self._is_in_final_phase:
            self._finish(token)
        else:
            self._close_block(token)
        return None

    def _advance_speech(self, token: int) -> int:
        self.decoded.append(token)
        self._num_emitted += 1
        if self._num_emitted == self._max_tokens:
            self.state = SequenceState.TRUNCATED
        else:
            self._input = [(Table.SPEECH, token)]
            self._set_feed()
        return token

    def _close_block(self, token: int | None) -> None:
        fill = self._config.fill_id
        if token not in (None, fill) and self._policy is BistreamPolicy.UPSTREAM:
            self._fail(f"the model gave the special token {token} inside a block of speech tokens")
            return
        if len(self._input) > 1 and self._policy is BistreamPolicy.ROBUST:
            self._input = []
        self._next_fill = len(self.decoded) + self._config.mix_ratio[1] + 1
        self.decoded.append(fill)
        self._read_text()

    def _finish(self, token: int | None) -> None:
        if token != self._config.eos_id and self._policy is BistreamPolicy.UPSTREAM:
            self._fail(f"the model gave the special token {token} before its end of speech")
        else:
            self.state = SequenceState.FINISHED

    def _fail(self, failure: str) -> None:
        self.state = SequenceState.FAILED
        self.failure = failure

    def _read_text(self) -> None:
        """Look at text until it opens a block, ends or runs out. As upstream, a token opens at most one block."""
        while self._inbox:
            self._num_text_tokens += 1
            self._text.append(self._inbox.popleft())
            if self._can_open_block():
                self._set_feed()
                return
        if self._is_text_ended:
            self._open_final_phase()
        else:
            self.state = SequenceState.WAITING

    def _can_open_block(self) -> bool:
        """Move text (and prompt speech) into the next input; True where that is complete."""
        num_text, num_speech = self._config.mix_ratio
        while self._prompt_speech:
            if len(self._text) < num_text:
                return False
            self._input += [*self._take_text(num_text), *_speech_items(self._prompt_speech[:num_speech])]
            del self._prompt_speech[:num_speech]
        if self.decoded or self._waits_for_first_text:
            if len(self._text) < num_text:
                return False
            unfed = [] if self.decoded else self._input  # decoded: its last is the fill that closed a block
            self._input = unfed + self._take_text(num_text)
        return True

    def _take_text(self, count: int) -> list[Item]:
        taken = _text_items(self._text[:count])
        del self._text[:count]
        return taken

    def _open_final_phase(self) -> None:
        self._is_in_final_phase = True
        if self._policy is BistreamPolicy.ROBUST:
            if not self._num_text_tokens:
                self.state = SequenceState.FINISHED
                return
            limit = self._config.stop.max_length(self._num_text_tokens, num_spoken=self._num_emitted)
            self._max_tokens = limit if self._max_tokens is None else min(limit, self._max_tokens)
        late_speech = self._untangle_prompt() if self._policy is BistreamPolicy.ROBUST else []
        task = (Table.SPEECH, self._config.task_id)
        self._input = [*self._input, *self._take_text(len(self._text)), task, *late_speech]
        self._set_feed()

    def _untangle_prompt(self) -> list[Item]:
        """The whole prompt speech, taken out of the input again, where the text did not suffice to interleave it."""
        if not self._prompt_speech:
            return []
        sos, *gathered = self._input  # nothing has been fed yet
        self._input = [sos, *(item for item in gathered if item[0] is Table.TEXT)]
        taken = [item for item in gathered if item[0] is Table.SPEECH]
        return [*taken, *_speech_items(self._prompt_speech)]

    def _set_feed(self) -> None:
        self.state = SequenceState.RUNNABLE
        if self._is_in_final_phase:
            self.feed = Feed(tuple(self._input), ignore_eos=False)
        else:
            is_forced_fill = len(self.decoded) == self._next_fill
            self.feed = Feed(tuple(self._input), ignore_eos=True, is_forced_fill=is_forced_fill)


LlmSequence = Unistream | Growing | Bistream


def _check_instruction(config: LlmConfig, text_ids: tuple[int, ...]) -> None:
    """Raises InvalidRequest for a text without end of its instruction, where the model wants one before every text."""
    is_needed = config.end_of_prompt_id is not None and config.needs_end_of_prompt
    if is_needed and config.end_of_prompt_id not in text_ids:
        raise InvalidRequest("the text lacks <|endofprompt|>, which ends the instruction before it")


def ends_speech(config: LlmConfig, token: int) -> bool:
    """Of a token that a sequence drew outside bistream's blocks."""
    return token == config.eos_id if config.stop.is_eos_alone else token >= config.speech_token_size


def _audible(config: LlmConfig, token: int) -> int | None:
    return token if token < config.speech_token_size else None


# What stands around the text is some 260 items, the same for all that a voice says; there may be as many voices.
@lru_cache(maxsize=256)
def _before_text(config: LlmConfig, prompt: LlmPrompt) -> tuple[Item, ...]:
    return ((Table.SPEECH, config.sos_id), *_text_items(prompt.text_ids))


@lru_cache(maxsize=256)
def _behind_text(config: LlmConfig, prompt: LlmPrompt) -> tuple[Item, ...]:
    return ((Table.SPEECH, config.task_id), *_speech_items(prompt.speech_ids))


def _text_items(text_ids: Iterable[int]) -> list[Item]:
    table = Table.TEXT
    return [(table, text_id) for text_id in text_ids]


def _speech_items(speech_ids: Iterable[int]) -> list[Item]:
    table = Table.SPEECH
    return [(table, speech_id) for speech_id in speech_ids]
