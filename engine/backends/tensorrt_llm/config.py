"""How TensorRT-LLM's executor is run. Values as its own arguments take them; no torch, nothing of its package."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Block of its paged cache, and so the unit that its prefix cache finds again. Its own default.
_TOKENS_PER_BLOCK: Final = 32
# Room for prompts that nobody speaks at the moment, in sequences: what the prefix cache keeps of the voices.
# Higher -> more prompts are found again; lower -> more memory for the flow.
_KEPT_PROMPTS: Final = 8
# Tokens of prompts that may be computed in one step. Higher -> new requests are sooner heard; lower -> the others'
# steps beside them are shorter. A whole prompt has to fit: chunked prefill stays off (faults with reuse,
# docs/adr/0015).
_LEAST_STEP_TOKENS: Final = 2048


@dataclass(frozen=True, slots=True)
class TensorrtLlmConfig:
    checkpoint_dir: Path  # of `voicegate convert --merged-hf`
    num_slots: int
    max_positions: int  # of a slot: prompt, text and speech
    is_eager: bool = False

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
    # Common beginnings of prompts are computed once. Off -> every pass computes its prompt; for finding faults.
    has_reuse: bool = True
    # See backend.Limits.
    first_token_timeout_s: float = 20.0
    token_timeout_s: float = 10.0

    @property
    def max_step_tokens(self) -> int:
        return max(_LEAST_STEP_TOKENS, self.max_positions + self.num_slots)

    @property
    def max_cached_tokens(self) -> int:
        """Keys and values for all slots, in whole blocks: no sequence is ever evicted, and the flow has the rest."""
        blocks_per_sequence = -(-self.max_positions // _TOKENS_PER_BLOCK)
        return (self.num_slots + _KEPT_PROMPTS) * blocks_per_sequence * _TOKENS_PER_BLOCK
