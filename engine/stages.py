"""The models of one engine, loaded: what the pipeline runs and every utterance shares."""

from collections.abc import Mapping
from dataclasses import dataclass

from engine.lanes import HOST_LANE, Lane
from engine.llm.backend import LlmBackend
from engine.model_config import ModelConfig
from engine.prompting import PassPrompt
from engine.text.tokenizer import TextTokenizer
from engine.token2wav.flow.prompt import PreparedPrompt
from engine.token2wav.flow.runner import FlowRunner
from engine.token2wav.vocoder.runner import VocoderRunner
from engine.voices.voice import Voice


@dataclass(frozen=True, slots=True)
class ReadyVoice:
    """A voice with what the models keep of it: the LLM's prompt and the flow's computed prompt blocks."""

    voice: Voice
    llm_prompt: PassPrompt
    flow_prompt: PreparedPrompt


@dataclass(frozen=True, slots=True)
class VoiceRoom:
    """What the models were built to hold of voices, those that may be added later included."""

    num_blocks: int  # of the flow, over all prompts
    prompt_tokens: int  # of the longest prompt


@dataclass(frozen=True, slots=True)
class Stages:
    model: ModelConfig
    tokenizer: TextTokenizer
    llm: LlmBackend
    flow: FlowRunner
    vocoder: VocoderRunner
    voices: Mapping[str, ReadyVoice]  # at the start; see engine.voice_shelf
    llm_lane: Lane = HOST_LANE
    flow_lane: Lane = HOST_LANE
    vocoder_lane: Lane = HOST_LANE
    is_concurrent: bool = False  # the lanes run side by side
    voice_room: VoiceRoom = VoiceRoom(0, 0)
