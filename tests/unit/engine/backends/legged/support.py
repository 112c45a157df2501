"""Our backend over the stand-in for either package, which decodes with a small model of ours."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.support.tensorrt_llm import standin as tensorrt_llm_standin
from tests.support.vllm import standin as vllm_standin
from tests.unit.engine.llm.support import small_llm_config, small_state_dict
from voicegate.engine.backends.legged.backend import LeggedLlm
from voicegate.engine.backends.legged.config import LeggedConfig
from voicegate.engine.backends.tensorrt_llm import library as tensorrt_llm_library
from voicegate.engine.backends.tensorrt_llm.config import TensorrtLlmConfig
from voicegate.engine.backends.vllm import library as vllm_library
from voicegate.engine.backends.vllm.config import VllmConfig
from voicegate.engine.llm.backend import LlmPrompt, SequenceOutput, SequenceRequest
from voicegate.engine.llm.torch.kv_cache import KvCache, RaggedAttention, Span
from voicegate.engine.llm.torch.model import LlmModel
from voicegate.engine.model.config import SamplingConfig
from voicegate.engine.model.qwen2 import MergedVocabulary

CONFIG = small_llm_config()
VOCABULARY = MergedVocabulary(CONFIG, CONFIG.vocab_size)
MAX_POSITIONS = 200
PROMPT = LlmPrompt((1, 2, CONFIG.end_of_prompt_id or 0, 9, 8), (5, 6, 7))
TEXT = (10, 11, 12, 13)
_UNLIKELY = -30.0


class SmallModel:
    """Everything is computed anew for each token."""

    def __init__(self) -> None:
        self._model = LlmModel(CONFIG, small_state_dict(), device="cpu", dtype=torch.float32)

    @torch.inference_mode()
    def __call__(self, ids: Sequence[int]) -> torch.Tensor:
        cache = KvCache(CONFIG, num_slots=1, max_positions=len(ids), device="cpu", dtype=torch.float32)
        first_speech_id = VOCABULARY.first_speech_id
        moved = self._model.first_speech_row - first_speech_id
        rows = torch.tensor([id_ if id_ < first_speech_id else id_ + moved for id_ in ids])
        hidden = self._model.forward(self._model.embed(rows), RaggedAttention(cache, [Span(0, 0, len(ids))]))
        logits = torch.full((VOCABULARY.num_rows,), _UNLIKELY)
        logits[first_speech_id : VOCABULARY.num_ids] = self._model.logits(hidden[-1:])[0]
        return logits


class Endless(SmallModel):
    """It draws no end."""

    def __call__(self, ids: Sequence[int]) -> torch.Tensor:
        logits = super().__call__(ids).clone()
        logits[VOCABULARY.first_speech_id + CONFIG.speech_token_size :] = -100.0
        return logits


@dataclass(frozen=True, slots=True)
class Running:
    backend: LeggedLlm
    standin: Any

    @property
    def llm(self) -> Any:
        """The package's, as the stand-in has it."""
        return self.standin.llms[-1]


@dataclass(frozen=True)
class Package:
    name: str
    standin: Any  # modules: of the stand-in, and of what we ask of the package
    library: Any
    settings: Callable[..., LeggedConfig]
    falls_silent: Callable[[Any], None]  # without a word

    def behaviour(self, *given: Any, **named: Any) -> Any:
        return self.standin.Behaviour(*given, **named)

    @contextmanager
    def running(self, behaviour: Any = None, *, num_slots: int = 3, **settings: Any) -> Iterator[Running]:
        sizes: dict[str, Any] = {"num_slots": num_slots, "max_positions": MAX_POSITIONS}
        chosen = self.settings(checkpoint_dir=Path("merged"), **sizes, **settings)
        with self.standin.installed(behaviour or self.behaviour(SmallModel())) as standin:
            library = self.library.open_library(chosen, CONFIG, SamplingConfig(), VOCABULARY)
            with closing(LeggedLlm(CONFIG, VOCABULARY, library, chosen)) as backend:
                yield Running(backend, standin)


def _takes_no_step(llm: Any) -> None:
    llm.behaviour.num_steps = 0


TENSORRT_LLM = Package(
    "TensorRT-LLM",
    tensorrt_llm_standin,
    tensorrt_llm_library,
    TensorrtLlmConfig,
    falls_silent=tensorrt_llm_standin.Llm.die,
)
VLLM = Package(
    "vLLM",
    vllm_standin,
    vllm_library,
    partial(VllmConfig, gpu_memory_utilization=0.2),
    falls_silent=_takes_no_step,
)
PACKAGES = {"tensorrt-llm": TENSORRT_LLM, "vllm": VLLM}


def request(sequence_id: int = 0, *, seed: int = 1, max_tokens: int = 12, is_growing: bool = False) -> SequenceRequest:
    text_ids = () if is_growing else TEXT
    return SequenceRequest(sequence_id, PROMPT, text_ids, seed=seed, max_tokens=max_tokens, is_growing=is_growing)


def outputs(made: Running) -> list[SequenceOutput]:
    """Until it has nothing under way."""
    found = []
    while made.backend.is_busy:
        made.backend.wait()
        found += made.backend.poll()
    return found


def tokens(found: Sequence[SequenceOutput], sequence_id: int = 0) -> list[int]:
    return [token for output in found for token in output.tokens if output.sequence_id == sequence_id]
