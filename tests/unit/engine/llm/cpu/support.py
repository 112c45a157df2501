"""Small models with float16 weights, for those of decode.c's functions that this processor runs."""

from dataclasses import replace
from typing import Final

import torch

from tests.unit.engine.llm.support import small_llm_config
from voicegate.engine.llm.cpu.decoder import CpuDecoder, vectors_of_processor
from voicegate.engine.llm.torch.kv_cache import KvCache, RaggedAttention, Span
from voicegate.engine.llm.torch.model import LlmModel, llm_shapes
from voicegate.engine.model.config import HeadBias, LlmConfig

VECTORS: Final = {"avx512": ("avx512", "avx2"), "avx2": ("avx2",), None: ()}[vectors_of_processor()]


def config_of(heads: int, kv_heads: int, *, head_dim: int = 32, head_bias: HeadBias = HeadBias.ABSENT) -> LlmConfig:
    return replace(
        small_llm_config(),
        hidden_size=80,
        intermediate_size=112,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        max_positions=96,
        num_special_rows=201,
        head_bias=head_bias,
    )


def random_state(config: LlmConfig, *, with_biases: bool = True) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    state = {}
    for name, shape in llm_shapes(config).items():
        values = torch.randn(shape, generator=generator) * (0.5 if len(shape) == 1 else 1.5 * shape[-1] ** -0.5)
        if name.endswith("norm.weight"):
            values += 1.0
        elif name.endswith(".bias") and not with_biases:
            values.zero_()
        state[name] = values.half()
    return state


class Both:
    """A model by torch and by C, each with a cache of its own; a free place holds nan."""

    def __init__(self, config: LlmConfig, state: dict[str, torch.Tensor], vectors: str, *, num_slots: int = 9) -> None:
        self.model = LlmModel(config, state)
        self.caches = [
            KvCache(config, num_slots=num_slots, max_positions=90, device="cpu", dtype=torch.float32) for _ in range(2)
        ]
        for cache in self.caches:
            cache.data.fill_(torch.nan)
        self.decoder = CpuDecoder(config, state, self.caches[1], vectors=vectors)

    def prefill(self, slot: int, embeddings: torch.Tensor) -> None:
        """Into both caches, by torch."""
        for cache in self.caches:
            self.model.forward(embeddings, RaggedAttention(cache, [Span(slot, 0, len(embeddings))]))

    def by_torch(self, embeddings: torch.Tensor, slots: list[int], positions: list[int]) -> torch.Tensor:
        spans = [Span(slot, position, 1) for slot, position in zip(slots, positions, strict=True)]
        return self.model.forward(embeddings, RaggedAttention(self.caches[0], spans))
