"""How a package's executor is run, whichever it is. No torch, nothing of any package."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Room for prompts that nobody speaks at the moment, in sequences: what the prefix cache keeps of the voices.
# Higher -> more prompts are found again; lower -> more memory for the flow.
KEPT_PROMPTS: Final = 8
# Tokens of prompts that may be computed in one step. Higher -> new requests are sooner heard; lower -> the others'
# steps beside them are shorter. A whole prompt has to fit: chunked prefill stays off (faults with reuse,
# docs/adr/0015).
_LEAST_STEP_TOKENS: Final = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class LeggedConfig:
    checkpoint_dir: Path  # of `voicegate convert --merged-hf`
    num_slots: int
    max_positions: int  # of a slot: prompt, text and speech
    is_eager: bool = False
    # Common beginnings of prompts are computed once. Off -> every pass computes its prompt; for finding faults.
    has_reuse: bool = True
    # Silence for so long ends a sequence; if nobody else heard anything either, the executor counts as dead. Lower -> a
    # slow moment is taken for death; higher -> listeners wait longer before a dead one is restarted.
    first_token_timeout_s: float = 20.0
    token_timeout_s: float = 10.0  # after its first token

    @property
    def max_step_tokens(self) -> int:
        return max(_LEAST_STEP_TOKENS, self.max_positions + self.num_slots)
