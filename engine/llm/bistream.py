"""Text and speech interleaved: speech begins before all text is there. No torch, no sampling.

Layouts and quirks are upstream's (cosyvoice/llm/llm.py: inference_bistream).
"""

from collections import deque
from collections.abc import Iterable
from enum import Enum

import numpy as np

from voicegate.engine.llm.backend import InvalidRequest, LlmPrompt
from voicegate.engine.llm.feed import Feed, SequenceState, check_instruction
from voicegate.engine.model.config import LlmConfig


class BistreamPolicy(Enum):
    """How bistream behaves where upstream raises or runs on.

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
        check_instruction(config, prompt.text_ids)
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
        self._input = [self._speech_row(config.sos_id), *prompt.text_ids[:instruction_end]]
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
            self._input = [self._speech_row(token)]
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
            self._input += [*self._take_text(num_text), *map(self._speech_row, self._prompt_speech[:num_speech])]
            del self._prompt_speech[:num_speech]
        if self.decoded or self._waits_for_first_text:
            if len(self._text) < num_text:
                return False
            unfed = [] if self.decoded else self._input  # decoded: its last is the fill that closed a block
            self._input = unfed + self._take_text(num_text)
        return True

    def _take_text(self, count: int) -> list[int]:
        taken = self._text[:count]
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
        task = self._speech_row(self._config.task_id)
        self._input = [*self._input, *self._take_text(len(self._text)), task, *late_speech]
        self._set_feed()

    def _untangle_prompt(self) -> list[int]:
        """The whole prompt speech, taken out of the input again, where the text did not suffice to interleave it."""
        if not self._prompt_speech:
            return []
        sos, *gathered = self._input  # nothing has been fed yet
        first_speech_row = self._speech_row(0)
        self._input = [sos, *(row for row in gathered if row < first_speech_row)]
        taken = [row for row in gathered if row >= first_speech_row]
        return [*taken, *map(self._speech_row, self._prompt_speech)]

    def _set_feed(self) -> None:
        self.state = SequenceState.RUNNABLE
        rows = np.array(self._input, np.int32)
        if self._is_in_final_phase:
            self.feed = Feed(rows, ignore_eos=False)
        else:
            is_forced_fill = len(self.decoded) == self._next_fill
            self.feed = Feed(rows, ignore_eos=True, is_forced_fill=is_forced_fill)

    def _speech_row(self, speech_id: int) -> int:
        return self._config.vocab_size + speech_id
