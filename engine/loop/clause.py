"""A clause: one LLM pass of an utterance and the audio that becomes of it. State only; pipeline moves it along."""

from dataclasses import dataclass, field
from enum import Enum

from voicegate.engine.llm.silent_filter import SilentTokenFilter
from voicegate.engine.token2wav.flow.backend import FlowStream
from voicegate.engine.token2wav.stretch import MelStretch
from voicegate.engine.token2wav.vocoder.backend import VocoderStream


class ClauseState(Enum):
    WAITING = "waiting"  # text only
    GENERATING = "generating"  # the LLM runs
    RENDERING = "rendering"  # the LLM is done, audio still to come
    SPOKEN = "spoken"  # all samples delivered


@dataclass(slots=True)
class ModelStreams:
    """What an active clause holds of the models, from the start of its LLM pass to its last sample."""

    sequence_id: int
    silent_filter: SilentTokenFilter
    flow: FlowStream
    stretch: MelStretch
    vocoder: VocoderStream


@dataclass(frozen=True, slots=True)
class Entry:
    """An utterance's line on the roster: its key, and where a change of it is told."""

    key: int
    changed: set[int] = field(default_factory=set)  # keys of all who have told of one since they were looked at

    def report(self) -> None:
        self.changed.add(self.key)


@dataclass(slots=True, eq=False)
class Clause:
    """Every change of a field is reported, so that no step of the pipeline can forget to."""

    entry: Entry
    char_start: int  # into all text of the utterance
    text: str  # as the client wrote it
    text_ids: list[int]  # what the LLM has not been given of it yet
    is_text_complete: bool
    num_letters: int = 0  # that its words have
    state: ClauseState = ClauseState.WAITING
    flush_ids: list[str] = field(default_factory=list)  # flushes that are met when it is spoken
    streams: ModelStreams | None = None
    batch: int | None = None  # the running flow batch that solves its block
    begun_s: float = 0.0  # engine clock, when its LLM pass was started
    is_prefilled: bool = False  # the LLM has read its prompt
    num_expected_blocks: int = 0  # flow blocks set aside for it at its start
    num_tokens: int = 0  # speech tokens handed to the flow
    num_rendered_tokens: int = 0  # of these, already mel
    # Of one whose pass began before its text was complete, and is read again as it grows:
    num_sayable_letters: int = 0  # of the words known by now, but for the last
    num_made: int = 0  # speech tokens that the LLM has made of it, silent ones among them
    is_paused: bool = False  # its reading is over, its text was not
    reading_since_s: float | None = None  # engine clock; None once samples have come of it
    start_ms: int | None = None  # on the utterance's audio clock, once its audio has begun
    is_aligned: bool = False

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)
        self.entry.report()

    @property
    def num_ahead_tokens(self) -> int:
        """Speech tokens that the LLM is ahead of the flow."""
        return self.num_tokens - self.num_rendered_tokens

    @property
    def utterance_key(self) -> int:
        return self.entry.key

    @property
    def is_active(self) -> bool:
        return self.streams is not None

    @property
    def is_silent(self) -> bool:
        """There is nothing in it to say: only whitespace, punctuation, symbols."""
        return self.state is ClauseState.WAITING and self.is_text_complete and not self.text_ids
