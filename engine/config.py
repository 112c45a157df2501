"""How this process runs a model: device, room and pace. What the model is stands in model_config. No torch."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EngineConfig:
    model_dir: Path
    device: str = "auto"  # auto, cpu, cuda
    threads: int | None = None  # of torch's CPU kernels; None: one per core

    # Utterances open at once. An idle one costs no model memory, so agents may open theirs early.
    max_utterances: int = 64
    # LLM passes at once: each holds an LLM slot and room for max_clause_tokens in the flow's cache.
    # Higher -> more streams share a step; lower -> less memory and a shorter step.
    max_active_clauses: int = 8
    # Speech tokens of one LLM pass, 40 ms each; a pass that would run on is cut here and logged.
    max_clause_tokens: int = 750

    # Audio generated ahead of real time, unless a request names its own lead, which max_lead_ms bounds.
    # Higher -> survives longer stalls; lower -> a barge-in that nobody reports wastes less.
    lead_ms: int = 3_000
    max_lead_ms: int = 60_000
    # Speech tokens that the LLM may be ahead of the flow. Lower -> the LLM idles between blocks.
    llm_ahead_tokens: int = 100

    # The flow's first block ends where the prompt leaves off plus this many tokens; voices are trimmed by up to
    # max_prompt_trim_tokens to make it so. Lower -> first audio sooner, but less of it to cover the second block.
    first_block_tokens: int = 10
    max_prompt_trim_tokens: int = 10

    # Streams whose blocks are solved in one call. Higher -> more throughput; lower -> less waiting for company.
    max_flow_batch: int = 4
