"""What flatters a run's figures: where it was told, or given, more than a gateway in service is. Pure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from voicegate.bench.engine.texts import Lengths
from voicegate.engine.config import EngineConfig
from voicegate.engine.token2wav.flow import chunking
from voicegate.engine.token2wav.flow.chunking import TOKENS_PER_BLOCK

_SHIPPED: Final = EngineConfig(Path())
# Prompts of any length: a block's worth of them behind the trims' reach.
_PROMPT_TOKENS: Final = range(4 * TOKENS_PER_BLOCK, 5 * TOKENS_PER_BLOCK)


def first_blocks(prompt_tokens: Sequence[int], *, wanted: int, max_trim: int) -> list[int]:
    """Speech tokens of the first block behind prompts of these lengths, once they are trimmed."""
    return [
        chunking.first_block_tokens(num - chunking.prompt_trim(num, wanted=wanted, max_trim=max_trim))
        for num in prompt_tokens
    ]


def flattery(run: Mapping[str, Any]) -> list[str]:
    """Of a result file of bench.engine, one phrase each; what it does not hold is left out."""
    config, load = run["config"], run["load"]
    phrases = ["measured at the engine seam: no sockets, no gateway, no client's network"]
    if load["tokens_per_s"] is None:
        phrases.append("text given whole, not as an agent writes it")
    if run["lengths"] == Lengths.LIMIT.value:
        phrases.append("admission knows every utterance's length exactly, because the model never stops by itself")
    waiting = config["max_waiting_utterances"]
    if waiting > _SHIPPED.max_waiting_utterances:
        phrases.append(
            f"nobody is refused: {waiting} utterances may wait for room, as shipped {_SHIPPED.max_waiting_utterances}"
        )
    if len(run["voices"]) == 1:
        phrases.append("all speak with one voice")
    prompts = run.get("prompt_tokens")
    if prompts:
        phrases.append(_first_block_phrase(list(prompts.values()), config))
    return phrases


def _first_block_phrase(prompt_tokens: Sequence[int], config: Mapping[str, Any]) -> str:
    trims = {"wanted": config["first_block_tokens"], "max_trim": config["max_prompt_trim_tokens"]}
    here, anywhere = first_blocks(prompt_tokens, **trims), first_blocks(_PROMPT_TOKENS, **trims)
    return (
        f"the first block takes {sum(here) / len(here):.0f} speech tokens behind this run's prompts; over all prompt "
        f"lengths it is {sum(anywhere) / len(anywhere):.0f}, at worst {max(anywhere)}"
    )
