"""The models of one engine, loaded: what the pipeline runs and every utterance shares."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from voicegate.engine.core.prompting import PassPrompt
from voicegate.engine.device.lanes import HOST_LANE, Lane
from voicegate.engine.flow.backend import FlowBackend, PreparedPrompt
from voicegate.engine.llm.backend import LlmBackend
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.engine.vocoder.backend import VocoderBackend
from voicegate.engine.voices.voice import Voice


@dataclass(slots=True, eq=False)
class VoicePrompt:
    """A voice's prompt in the flow: rendered, or, while others need the memory, what is known of it without that."""

    rendered: PreparedPrompt | None
    first_block_tokens: int
    second_block_tokens: int
    last_use: int = 0  # by the shelf's count

    @classmethod
    def of(cls, rendered: PreparedPrompt) -> "VoicePrompt":
        return cls(rendered, rendered.first_block_tokens, rendered.second_block_tokens)

    @property
    def num_blocks(self) -> int:
        return 0 if self.rendered is None else self.rendered.num_blocks

    def give_back(self, flow: FlowBackend[Any, Any]) -> None:
        """Its memory. It is as if it had never been rendered. Idempotent."""
        rendered, self.rendered = self.rendered, None
        if rendered is not None:
            flow.release(rendered)


@dataclass(frozen=True, slots=True)
class ReadyVoice:
    """A voice with what the models keep of it: the LLM's prompt and its place in the flow's memory."""

    voice: Voice
    llm_prompt: PassPrompt
    flow_prompt: VoicePrompt
    tokens_per_letter: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens_per_letter", self.voice.tokens_per_letter())


@dataclass(frozen=True, slots=True)
class VoiceRoom:
    """Voices that the models were built to hold at once, those that may be added later included."""

    prompt_tokens: tuple[int, ...] = ()  # of each

    @property
    def longest_tokens(self) -> int:
        return max(self.prompt_tokens, default=0)


@dataclass(frozen=True, slots=True)
class Stages:
    model: ModelConfig
    tokenizer: TextTokenizer
    llm: LlmBackend
    flow: FlowBackend[Any, Any]  # only it knows the types of what it makes
    vocoder: VocoderBackend
    voices: Mapping[str, ReadyVoice]  # at the start; see engine.voice_shelf
    token2wav_lane: Lane = HOST_LANE  # flow and vocoder
    is_concurrent: bool = False  # the lanes run side by side
    shares_device: bool = True  # what runs side by side slows each other down
    # So many frames of a rendering's first block go to the vocoder, and are heard, before its others. 0: they go
    # together, as on a lane that has not done its work when a launch returns.
    frames_ahead: int = 0
    voice_room: VoiceRoom = VoiceRoom()
    # Names of LLM passes, none used twice with this LLM: what is made of a released one may still come.
    sequence_ids: Iterator[int] = field(default_factory=count)
