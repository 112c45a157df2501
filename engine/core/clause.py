"""A clause: one LLM pass of an utterance and the audio that becomes of it. State only; pipeline moves it along."""

from dataclasses import dataclass, field
from enum import Enum

from voicegate.engine.flow.backend import FlowStream
from voicegate.engine.llm.silent_filter import SilentTokenFilter
from voicegate.engine.vocoder.backend import VocoderStream
from voicegate.engine.vocoder.stretch import MelStretch


class ClauseState(Enum):
    WAITING = "waiting"  # text only
    GENERATING = "generating"  # the LLM runs
    RENDERING = "rendering"  # the LLM is done, audio still to come
    SPOKEN = "spoken"  # all samples delivered


@dataclass(frozen=True, slots=True)
class LlmPass:
    """A clause's part of the LLM, up to its last token."""

    sequence_id: int
    silent_filter: SilentTokenFilter


@dataclass(slots=True, eq=False)
class Rendering:
    """An active clause's part of flow and vocoder, up to its last sample."""

    flow: FlowStream
    stretch: MelStretch
    vocoder: VocoderStream
    num_expected_blocks: int  # of the flow's memory, that it is expected to fill
    num_missing_blocks: int  # of these, not filled yet
    num_samples: int = 0  # that it has made


@dataclass(slots=True, eq=False)
class Clause:
    key: int  # of its utterance
    char_start: int  # into all text of the utterance
    text: str  # as the client wrote it
    text_ids: list[int]  # what the LLM has not been given of it yet
    is_text_complete: bool
    num_letters: int = 0  # that its words have
    given_ids: list[int] = field(default_factory=list)  # what the LLM was given of it, but for a growing text
    is_second_try: bool = False  # the LLM had made nothing of it
    state: ClauseState = ClauseState.WAITING
    pause_ms: int = 0  # of silence after it
    flush_ids: list[str] = field(default_factory=list)  # flushes that are met when it is spoken
    llm_pass: LlmPass | None = None
    rendering: Rendering | None = None  # None after its start: it was set aside
    batch: int | None = None  # the running flow batch that solves its block
    awaits_samples: bool = False  # of a block, whose last step is launched
    begins_short: bool = False  # its first block has fewer tokens: sound sooner, and less of it before the second
    begun_s: float = 0.0  # engine clock, when its LLM pass was started
    is_prefilled: bool = False  # the LLM has read its prompt
    tokens: list[int] = field(default_factory=list)  # all speech tokens for the flow
    num_rendered_tokens: int = 0  # of these, already mel
    num_samples: int = 0  # that the listener has been sent
    # Of one whose pass began before its text was complete, and is read again as it grows:
    num_sayable_letters: int = 0  # of the words known by now, but for the last
    num_open_chars: int = 0  # of that last word, which may go on
    is_paused: bool = False  # its reading is over, its text was not
    # Letters of all its words, where the LLM ended a reading of these: it is not read again before there are more.
    spent_letters: int = 0
    prefill_since_s: float | None = None  # engine clock; None once samples have come of it
    # Of a first reading of two blocks: when the first one's samples came, and its tokens; None once the second's have.
    second_since: tuple[float, int] | None = None
    start_ms: int | None = None  # on the utterance's audio clock, once its audio has begun

    @property
    def decided_text(self) -> str:
        """Words of `text` that nothing after it changes."""
        return self.text if self.is_text_complete else self.text[: len(self.text) - self.num_open_chars]

    @property
    def num_decided_letters(self) -> int:
        return self.num_letters if self.is_text_complete or not self.num_open_chars else self.num_sayable_letters

    @property
    def num_ahead_tokens(self) -> int:
        """Speech tokens that the LLM is ahead of the flow."""
        return len(self.tokens) - self.num_rendered_tokens

    @property
    def is_unheard(self) -> bool:
        """It has words, and no sound so far."""
        return self.num_letters > 0 and not self.num_samples

    @property
    def is_begun(self) -> bool:
        return self.state is not ClauseState.WAITING

    @property
    def is_set_aside(self) -> bool:
        """It made way for others: its sound is to be taken up again where its listener is."""
        return self.rendering is None and self.state in (ClauseState.GENERATING, ClauseState.RENDERING)

    @property
    def is_ahead(self) -> bool:
        """The LLM could begin it, whenever it comes to that."""
        return self.state is ClauseState.WAITING and self.is_text_complete and bool(self.text_ids)

    @property
    def is_silent(self) -> bool:
        """There is nothing in it to say: only whitespace, punctuation, symbols."""
        return self.state is ClauseState.WAITING and self.is_text_complete and not self.text_ids
