"""The backend over the stand-in, for an engine with the tiny model: what it says is made up, and costs no time."""

from collections.abc import Sequence
from pathlib import Path

import torch

from tests.support.golden import TINY_MODEL_DIR
from tests.support.tensorrt_llm.standin import Behaviour, Standin
from voicegate.engine.backends.legged.backend import LeggedLlm
from voicegate.engine.backends.tensorrt_llm.config import TensorrtLlmConfig
from voicegate.engine.backends.tensorrt_llm.library import open_library
from voicegate.engine.llm.backend import LlmBackend
from voicegate.engine.llm.runner import LlmRunner
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.qwen2 import MergedVocabulary

_MODEL = load_model_config(TINY_MODEL_DIR)
_VOCABULARY = MergedVocabulary(_MODEL.llm, _MODEL.llm.vocab_size)
_END_EVERY = 13  # positions


def babble(ids: Sequence[int]) -> torch.Tensor:
    """Some speech id, and now and then the end."""
    logits = torch.full((_VOCABULARY.num_rows,), -30.0)
    logits[_VOCABULARY.first_speech_id + len(ids) * 37 % _MODEL.llm.speech_token_size] = 0.0
    if len(ids) % _END_EVERY == 0:
        logits[_VOCABULARY.eos_id] = 10.0
    return logits


def tensorrt_llm_of(runner: LlmRunner) -> LlmBackend:
    """Where the stand-in is installed. With as many slots as the runner, whose work it does."""
    settings = TensorrtLlmConfig(checkpoint_dir=Path("merged"), num_slots=runner.num_free_slots, max_positions=1024)
    library = open_library(settings, _MODEL.llm, _MODEL.sampling, _VOCABULARY)
    return LeggedLlm(_MODEL.llm, _VOCABULARY, library, settings)


def failing_tensorrt_llm_of(standin: Standin, runner: LlmRunner) -> LlmBackend:
    """Its first sequence is refused."""
    llm = tensorrt_llm_of(runner)
    standin.llms[-1].behaviour = Behaviour(babble, refuses=_FirstIsRefused())
    return llm


class _FirstIsRefused:
    """The first request, however equal the others are."""

    def __init__(self) -> None:
        self._first: Sequence[int] | None = None

    def __call__(self, prompt: Sequence[int]) -> str | None:
        self._first = prompt if self._first is None else self._first
        return "made to fail" if prompt is self._first else None


def babbling() -> Behaviour:
    return Behaviour(babble, num_responses_late=3)
