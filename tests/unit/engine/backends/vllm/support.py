"""The backend over the stand-in for vLLM, which decodes with a small model of ours."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.vllm.standin import AsyncLLM, Behaviour, Standin, installed
from tests.unit.engine.backends.tensorrt_llm.support import CONFIG, MAX_POSITIONS, VOCABULARY, SmallModel
from voicegate.engine.backends.legged.backend import LeggedLlm
from voicegate.engine.backends.vllm.config import VllmConfig
from voicegate.engine.backends.vllm.library import open_library
from voicegate.engine.model.config import SamplingConfig


@dataclass(frozen=True, slots=True)
class Running:
    backend: LeggedLlm
    standin: Standin

    @property
    def llm(self) -> AsyncLLM:
        return self.standin.llms[-1]


@contextmanager
def running(behaviour: Behaviour | None = None, *, num_slots: int = 3, **settings: Any) -> Iterator[Running]:
    chosen = VllmConfig(
        Path("merged"), num_slots=num_slots, max_positions=MAX_POSITIONS, gpu_memory_utilization=0.2, **settings
    )
    with installed(behaviour or Behaviour(SmallModel())) as standin:
        library = open_library(chosen, CONFIG, SamplingConfig(), VOCABULARY)
        with closing(LeggedLlm(CONFIG, VOCABULARY, library, chosen)) as backend:
            yield Running(backend, standin)
