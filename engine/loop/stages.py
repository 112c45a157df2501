"""The models of one engine, loaded: what the pipeline runs and every utterance shares."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from voicegate.engine.device.lanes import HOST_LANE, Lane
from voicegate.engine.llm.backend import LlmBackend
from voicegate.engine.loop.prompting import PassPrompt
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.engine.token2wav.flow.backend import FlowBackend, PreparedPrompt
from voicegate.engine.token2wav.vocoder.backend import VocoderBackend
from voicegate.engine.voices.voice import Voice


@dataclass(frozen=True, slots=True)
class ReadyVoice:
    """A voice with what the models keep of it: the LLM's prompt and the flow's computed prompt blocks."""

    voice: Voice
    llm_prompt: PassPrompt
    flow_prompt: PreparedPrompt
    tokens_per_letter: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens_per_letter", self.voice.tokens_per_letter())


@dataclass(frozen=True, slots=True)
class VoiceRoom:
    """What the models were built to hold of voices, those that may be added later included."""

    prompt_tokens: tuple[int, ...] = ()  # of each

    @property
    def longest_tokens(self) -> int:
        return max(self.prompt_tokens, default=0)


@dataclass(frozen=True, slots=True)
class Stages:
    model: ModelConfig
    tokenizer: TextTokenizer
    llm: LlmBackend
    flow: FlowBackend[Any, Any]  # of what it makes nobody else knows the types
    vocoder: VocoderBackend
    voices: Mapping[str, ReadyVoice]  # at the start; see engine.voice_shelf
    token2wav_lane: Lane = HOST_LANE  # flow and vocoder
    is_concurrent: bool = False  # the lanes run side by side
    is_llm_apart: bool = False  # and the LLM's on a device of its own
    # Of a rendering's first block, that go to the vocoder and are heard before its others do; 0: they go together, as
    # on a lane that has not done its work when a launch returns.
    frames_ahead: int = 0
    voice_room: VoiceRoom = VoiceRoom()
    # Names of LLM passes, none used twice with this LLM: what is made of a released one may still come.
    sequence_ids: Iterator[int] = field(default_factory=count)
