"""Flattery: where a run was told, or given, more than a gateway in service is. Pure."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from voicegate.bench.engine.texts import Lengths
from voicegate.engine.config import EngineConfig

_SHIPPED: Final = EngineConfig(Path())
# Runs from when the prompt's length decided how soon its first block was full; results name its last setting.
_LUCKY_PROMPT: Final = (
    "the first block takes 10 speech tokens after this run's prompts; over all prompt lengths it was 14, at worst 24"
)


def flattery(run: Mapping[str, Any]) -> list[str]:
    """Flattering parts of a result file of bench.engine, one phrase each; parts that it does not hold are left out."""
    config, load = run["config"], run["load"]
    phrases = ["measured at the engine seam: no sockets, no gateway, no client's network"]
    if load["tokens_per_s"] is None:
        phrases.append("text given whole, not as an agent writes it")
    if run["lengths"] == Lengths.LIMIT.value:
        phrases.append("admission knows every utterance's length exactly, because the model never stops by itself")
    waiting = config["max_waiting_utterances"]
    if waiting > _SHIPPED.max_waiting_utterances:
        phrases.append(
            f"no one is refused: {waiting} utterances may wait for room, as shipped {_SHIPPED.max_waiting_utterances}"
        )
    if len(run["voices"]) == 1:
        phrases.append("all speak with one voice")
    if "max_prompt_trim_tokens" in config:
        phrases.append(_LUCKY_PROMPT)
    return phrases
