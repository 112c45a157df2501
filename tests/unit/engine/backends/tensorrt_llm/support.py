"""The backend over the stand-in for its package, which decodes with a small model of ours."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.support.tensorrt_llm.standin import Behaviour, Llm, Standin, installed
from tests.unit.engine.llm.support import small_llm_config, small_state_dict
from voicegate.engine.backends.legged.backend import LeggedLlm
from voicegate.engine.backends.tensorrt_llm.config import TensorrtLlmConfig
from voicegate.engine.backends.tensorrt_llm.library import open_library
from voicegate.engine.llm.torch.kv_cache import KvCache, RaggedAttention, Span
from voicegate.engine.llm.torch.model import LlmModel
from voicegate.engine.model.config import SamplingConfig
from voicegate.engine.model.qwen2 import MergedVocabulary

CONFIG = small_llm_config()
VOCABULARY = MergedVocabulary(CONFIG, CONFIG.vocab_size)
MAX_POSITIONS = 200
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


@dataclass(frozen=True, slots=True)
class Running:
    backend: LeggedLlm
    standin: Standin

    @property
    def llm(self) -> Llm:
        return self.standin.llms[-1]


@contextmanager
def running(behaviour: Behaviour | None = None, *, num_slots: int = 3, **settings: Any) -> Iterator[Running]:
    chosen = TensorrtLlmConfig(Path("merged"), num_slots=num_slots, max_positions=MAX_POSITIONS, **settings)
    with installed(behaviour or Behaviour(SmallModel())) as standin:
        library = open_library(chosen, CONFIG, SamplingConfig(), VOCABULARY)
        with closing(LeggedLlm(CONFIG, VOCABULARY, library, chosen)) as backend:
            yield Running(backend, standin)
