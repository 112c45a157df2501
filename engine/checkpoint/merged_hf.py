"""The speech LLM as a plain Qwen2 checkpoint, one vocabulary for text and speech: what TensorRT-LLM and vLLM serve.

Such a server has no repetition-aware sampling, and text ids compete with speech ids: its token streams differ from this
engine's.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import torch
from tokenizers import Tokenizer

from voicegate.engine.checkpoint.conversion import CheckpointError
from voicegate.engine.checkpoint.directory import Item, bytes_item
from voicegate.engine.checkpoint.storage import Entry, cast, file_bytes, write_safetensors
from voicegate.engine.checkpoint.tokenizer import add_plain_tokens
from voicegate.engine.llm.torch.model import TIED_TEXT_HEAD
from voicegate.engine.model.config import LlmConfig
from voicegate.engine.model.qwen2 import MergedVocabulary, qwen2_sizes

_DTYPE: Final = torch.bfloat16
_FORMAT: Final = {"format": "pt"}  # transformers refuses a file that does not say so
_UPSTREAM_PREFIX: Final = "llm.model."
_TEXT_TABLE: Final = "llm.model.model.embed_tokens.weight"
_SPEECH_TABLE: Final = "speech_embedding.weight"
_SPEECH_HEAD: Final = "llm_decoder.weight"
_END_OF_TEXT: Final = "<|endoftext|>"
# <|sos|> text <|task_id|> speech: CosyVoice's sequence as a chat of one turn.
_CHAT_TEMPLATE: Final = (
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ '<|sos|>' + message['content'] + '<|task_id|>' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] }}{% endif %}{% endfor %}"
)


def merged_items(
    config: LlmConfig,
    qwen2: Mapping[str, Any],
    state: Mapping[str, torch.Tensor],
    tokenizer_json: str,
    source: Mapping[str, Any],
) -> Iterator[Item]:
    """The files of the directory, config.json last. `qwen2`: of model.json; `source`: what the weights come from."""
    tokenizer = Tokenizer.from_str(tokenizer_json)  # a copy: it gets more tokens below
    try:
        vocabulary = MergedVocabulary(config, tokenizer.get_vocab_size())
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    entries = list(merged_entries(config, state, vocabulary))
    yield Item(
        "model.safetensors",
        {"from": dict(source), "dtype": "bf16", "rows": vocabulary.num_rows},
        file_bytes(entries, _FORMAT),
        lambda path, advance: write_safetensors(path, entries, texts=_FORMAT, advance=advance),
    )
    add_plain_tokens(tokenizer, vocabulary.speech_token_texts())
    yield bytes_item("tokenizer.json", tokenizer.to_str().encode())
    yield bytes_item("tokenizer_config.json", _json(_tokenizer_config(config)))
    yield bytes_item("generation_config.json", _json(_generation_config(vocabulary)))
    yield bytes_item("config.json", _json(_config(config, qwen2, vocabulary, tokenizer.token_to_id(_END_OF_TEXT))))


def merged_entries(
    config: LlmConfig, state: Mapping[str, torch.Tensor], vocabulary: MergedVocabulary
) -> Iterator[Entry]:
    """Qwen2ForCausalLM's tensors, all bfloat16."""
    table_shape = (vocabulary.num_rows, config.hidden_size)
    text_head = state.get(TIED_TEXT_HEAD, state[_TEXT_TABLE])
    for name, text, speech in (
        ("model.embed_tokens.weight", state[_TEXT_TABLE], state[_SPEECH_TABLE]),
        ("lm_head.weight", text_head, state[_SPEECH_HEAD]),
    ):
        yield Entry(name, table_shape, _DTYPE, partial(_merged_rows, name, text, speech, vocabulary))
    for name, tensor in state.items():
        if name.startswith(_UPSTREAM_PREFIX) and name not in (TIED_TEXT_HEAD, _TEXT_TABLE):
            make: Callable[[], torch.Tensor] = partial(cast, name, tensor, _DTYPE)
            yield Entry(name.removeprefix(_UPSTREAM_PREFIX), tuple(tensor.shape), _DTYPE, make)


def _merged_rows(name: str, text: torch.Tensor, speech: torch.Tensor, vocabulary: MergedVocabulary) -> torch.Tensor:
    rows = torch.zeros(vocabulary.num_rows, text.shape[1], dtype=_DTYPE)
    rows[: vocabulary.first_speech_id] = cast(name, text[: vocabulary.first_speech_id], _DTYPE)
    rows[vocabulary.first_speech_id : vocabulary.num_ids] = cast(name, speech, _DTYPE)
    return rows


def _config(
    config: LlmConfig, qwen2: Mapping[str, Any], vocabulary: MergedVocabulary, bos_id: int | None
) -> dict[str, Any]:
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": vocabulary.num_rows,
        **qwen2_sizes(config),
        "rope_theta": config.rope_theta,
        "hidden_act": qwen2.get("hidden_act", "silu"),
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "use_cache": True,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": bos_id,
        "eos_token_id": vocabulary.eos_id,
    }


def _generation_config(vocabulary: MergedVocabulary) -> dict[str, Any]:
    """Upstream's settings for these servers; with repetition-aware sampling absent, a penalty stands in for it."""
    return {
        "do_sample": True,
        "temperature": 0.8,
        "top_p": 0.95,
        "top_k": 25,
        "repetition_penalty": 1.1,
        "max_new_tokens": 2048,
        "eos_token_id": vocabulary.eos_id,
        "pad_token_id": vocabulary.eos_id,
    }


def _tokenizer_config(config: LlmConfig) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": _END_OF_TEXT,
        "pad_token": _END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "model_max_length": config.max_positions,
        "chat_template": _CHAT_TEMPLATE,
    }


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n"
