"""How TensorRT-LLM's executor is run. Values as its own arguments take them; no torch, nothing of its package."""

from dataclasses import dataclass
from typing import Final

from voicegate.engine.backends.legged.config import KEPT_PROMPTS, LeggedConfig

# Block of its paged cache, and so the unit that its prefix cache finds again. Its own default.
_TOKENS_PER_BLOCK: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorrtLlmConfig(LeggedConfig):
    # Its executor in a process of its own, started by MPI, instead of threads in this one. True -> its Python takes
    # nothing from the gateway's, but every token crosses a socket, and the GPU runs either it or the flow, in turns;
    # False -> both share one GPU context, and one interpreter lock.
    has_worker_process: bool = False
    # As the model was meant to be sampled, by a logits processor, which costs some 50 us of Python a sequence and step:
    # for a few streams. Else as NVIDIA's own runtime for CosyVoice does: nucleus and a penalty.
    is_repetition_aware: bool = False
    # Steps between two outputs of a sequence. Higher -> less Python a token; lower -> a first block up to so many steps
    # sooner.
    stream_interval: int = 2
    # The next step is launched before the last one's tokens are read. Off -> a single stream hears each token a step
    # sooner; on -> more tokens a second.
    has_overlap: bool = True

    @property
    def max_cached_tokens(self) -> int:
        """Keys and values for all slots, in whole blocks: no sequence is ever evicted, and the flow has the rest."""
        blocks_per_sequence = -(-self.max_positions // _TOKENS_PER_BLOCK)
        return (self.num_slots + KEPT_PROMPTS) * blocks_per_sequence * _TOKENS_PER_BLOCK
