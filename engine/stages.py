"""The models of one engine, loaded: what the pipeline runs and every utterance shares."""

from collections.abc import Mapping
from dataclasses import dataclass

from engine.llm.backend import LlmBackend, LlmPrompt
from engine.model_config import ModelConfig
from engine.text.tokenizer import TextTokenizer
from engine.token2wav.flow.prompt import PreparedPrompt
from engine.token2wav.flow.runner import FlowRunner
from engine.token2wav.vocoder.runner import VocoderRunner
from engine.voices.voice import Voice


@dataclass(frozen=True, slots=True)
class ReadyVoice:
    """A voice with what the models keep of it: the LLM's prompt and the flow's computed prompt blocks."""

    voice: Voice
    llm_prompt: LlmPrompt
    flow_prompt: PreparedPrompt


@dataclass(frozen=True, slots=True)
class Stages:
    model: ModelConfig
    tokenizer: TextTokenizer
    llm: LlmBackend
    flow: FlowRunner
    vocoder: VocoderRunner
    voices: Mapping[str, ReadyVoice]
