"""How vLLM's engine is run, and how much of a GPU it takes. No vLLM."""

from dataclasses import dataclass
from typing import Final

from voicegate.engine.backends.legged.config import KEPT_PROMPTS, LeggedConfig
from voicegate.engine.llm.torch.model import TEXT_TABLE, llm_shapes
from voicegate.engine.model.config import LlmConfig
from voicegate.engine.model.qwen2 import MergedVocabulary
from voicegate.engine.model.weights import num_weights

_BYTES: Final = 2  # of a number: the merged checkpoint is bfloat16
# vLLM's process beside weights and cache: its CUDA context, graphs, activations. By arithmetic, not measured.
# Higher -> less for the flow; lower -> vLLM finds no room for a cache, and does not start.
_PROCESS_BYTES: Final = 3 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmConfig(LeggedConfig):
    gpu_memory_utilization: float  # share of the whole GPU: all that vLLM takes
    # As the model was meant to be sampled, by a logits processor in vLLM's process, with its asynchronous scheduling
    # off. Else nucleus alone, and a token that came up a moment ago is not drawn anew: for comparisons of speed.
    is_repetition_aware: bool = True


def gpu_bytes(config: LlmConfig, vocabulary: MergedVocabulary, *, num_slots: int, max_positions: int) -> int:
    """All that vLLM needs: no sequence is ever evicted, and the flow has the rest."""
    shapes = {name: shape for name, shape in llm_shapes(config).items() if name != TEXT_TABLE}
    weights = num_weights(shapes) + 2 * vocabulary.num_rows * config.hidden_size  # its table and its head
    position_bytes = config.num_layers * 2 * config.num_kv_heads * config.head_dim * _BYTES
    cache_bytes = (num_slots + KEPT_PROMPTS) * max_positions * position_bytes
    return _PROCESS_BYTES + _BYTES * weights + cache_bytes
