"""The speech LLM as a plain Qwen2 checkpoint: one vocabulary for text and speech, and what its sizes are called there.

Text ids stay; speech id s is `first_speech_id` + s; rows up to a multiple of 128 are zero. No torch.
"""

from typing import Any, Final

from voicegate.engine.model.config import LlmConfig

# TensorRT shards and pads the head by this.
_ROWS_MULTIPLE: Final = 128


class MergedVocabulary:
    def __init__(self, config: LlmConfig, num_text_tokens: int) -> None:
        """`num_text_tokens`: the tokenizer's, special ones included. Raises ValueError."""
        if not 0 < num_text_tokens <= config.vocab_size:
            raise ValueError(f"{num_text_tokens} text tokens, but the text table has {config.vocab_size} rows")
        self._config = config
        self.first_speech_id = num_text_tokens
        self.num_ids = num_text_tokens + config.num_speech_rows
        self.num_rows = -(-self.num_ids // _ROWS_MULTIPLE) * _ROWS_MULTIPLE

    @property
    def eos_id(self) -> int:
        return self.first_speech_id + self._config.eos_id

    def speech_token_texts(self) -> list[str]:
        config = self._config
        named = {
            config.sos_id: "<|sos|>",
            config.eos_id: "<|eos1|>",
            config.task_id: "<|task_id|>",
            config.fill_id: "<|fill|>",
        }
        return [named.get(id_, f"<|s_{id_}|>") for id_ in range(config.num_speech_rows)]


def qwen2_sizes(config: LlmConfig) -> dict[str, Any]:
    """The decoder's sizes by the names of Hugging Face's Qwen2Config."""
    return {
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.rms_norm_eps,
    }
