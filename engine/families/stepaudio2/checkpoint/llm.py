"""CosyVoice2's LLM in its two layouts -> the engine's tensors: text table, speech table and head, each by itself.

llm.pt has them apart. The merged checkpoint (upstream's pretrained_to_huggingface.py) has one vocabulary: text, speech
tokens, three special ids that can be drawn, then sos and task, which never are. Rows that nothing reads stay behind.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from voicegate.engine.checkpoint.checkpoint import State
from voicegate.engine.checkpoint.conversion import CheckpointError
from voicegate.engine.llm.torch.model import BODY, HEAD, HEAD_BIAS, SPEECH_TABLE, TEXT_TABLE, TIED_TEXT_HEAD, llm_shapes
from voicegate.engine.model.config import LlmConfig
from voicegate.engine.model.weights import Shape

# Behind the speech tokens: eos, a second one, bistream's fill; then, in no head, sos and task.
NUM_SPECIAL_ROWS: Final = 3
NUM_UNSPOKEN_ROWS: Final = 2
_BEHIND: Final = ("<|eos1|>", "<|eos2|>", "<|eos3|>", "<|sos|>", "<|task_id|>")

_PROMPT_TABLE: Final = "llm_embedding.weight"  # of llm.pt: sos, task
_MERGED_TABLE: Final = "model.embed_tokens.weight"
_MERGED_HEAD: Final = "lm_head.weight"
_MERGED_BIAS: Final = "lm_head.bias"
_MERGED_BODY: Final = "model."


@dataclass(frozen=True, slots=True)
class SpeechIds:
    """Where speech lies in the merged vocabulary."""

    first: int
    num_tokens: int  # without the special ones behind them

    @classmethod
    def of(cls, added: Mapping[str, int], path: Path) -> "SpeechIds":
        """From the added tokens of a tokenizer, by text. Raises CheckpointError where they do not lie as upstream's."""
        first = added.get("<|s_0|>")
        if first is None:
            raise CheckpointError(f"{path} has no token <|s_0|>: it is no LLM that speech tokens were merged into")
        num_tokens = 0
        while added.get(f"<|s_{num_tokens}|>") == first + num_tokens:
            num_tokens += 1
        for place, text in enumerate(_BEHIND, first + num_tokens):
            if added.get(text) != place:
                raise CheckpointError(
                    f"{path} has {text} as {added.get(text)}; after <|s_{num_tokens - 1}|> it should be {place}"
                )
        return cls(first, num_tokens)


def merged_shapes(config: LlmConfig, num_rows: int) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """Tensors that the merged checkpoint must have and may have. `num_rows`: its `vocab_size`."""
    shapes = _body_shapes(config, BODY, _MERGED_BODY)
    shapes |= {_MERGED_TABLE: (num_rows, config.hidden_size), _MERGED_HEAD: (num_rows, config.hidden_size)}
    return shapes, {_MERGED_BIAS: (num_rows,)}


def merged_state(found: State, config: LlmConfig, ids: SpeechIds) -> dict[str, torch.Tensor]:
    """Views of its tensors under the engine's names."""
    spoken = slice(ids.first, ids.first + config.num_speech_rows)
    state = {
        TEXT_TABLE: found[_MERGED_TABLE][: config.vocab_size],
        SPEECH_TABLE: found[_MERGED_TABLE][ids.first : ids.first + config.num_table_rows],
        HEAD: found[_MERGED_HEAD][spoken],
    }
    if _MERGED_BIAS in found:
        state[HEAD_BIAS] = found[_MERGED_BIAS][spoken]
    apart = (_MERGED_TABLE, _MERGED_HEAD, _MERGED_BIAS)
    body = {BODY + name.removeprefix(_MERGED_BODY): tensor for name, tensor in found.items() if name not in apart}
    return state | body


def pt_shapes(config: LlmConfig, num_text_rows: int) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """Tensors that llm.pt must have and may have. `num_text_rows`: of Qwen2's own table, more than are used."""
    shapes = _body_shapes(config, BODY, BODY)
    shapes |= {
        TEXT_TABLE: (num_text_rows, config.hidden_size),
        SPEECH_TABLE: (config.num_speech_rows, config.hidden_size),
        _PROMPT_TABLE: (config.num_unspoken_rows, config.hidden_size),
        HEAD: (config.num_speech_rows, config.hidden_size),
        HEAD_BIAS: (config.num_speech_rows,),
    }
    return shapes, {TIED_TEXT_HEAD: (num_text_rows, config.hidden_size)}


def pt_state(found: State, config: LlmConfig) -> dict[str, torch.Tensor]:
    """Likewise for llm.pt."""
    unused = (TIED_TEXT_HEAD, _PROMPT_TABLE)
    return {name: tensor for name, tensor in found.items() if name not in unused} | {
        TEXT_TABLE: found[TEXT_TABLE][: config.vocab_size],
        SPEECH_TABLE: torch.cat([found[SPEECH_TABLE], found[_PROMPT_TABLE]]),
    }


def _body_shapes(config: LlmConfig, old_prefix: str, new_prefix: str) -> dict[str, Shape]:
    """Shapes of the decoder's layers and its last norm."""
    apart = (TEXT_TABLE, SPEECH_TABLE, HEAD, HEAD_BIAS)
    return {
        new_prefix + name.removeprefix(old_prefix): shape
        for name, shape in llm_shapes(config).items()
        if name not in apart
    }
