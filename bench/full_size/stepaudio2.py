"""CosyVoice2's LLM with Step-Audio2's token2wav, as upstream lays them out, with generated weights (source.py)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file

from voicegate.bench.full_size.source import LlmSizes, generate, qwen2_config, tokenizer_files
from voicegate.engine.checkpoint.conversion import Decoding
from voicegate.engine.checkpoint.model_json import check_model_json, qwen2_body
from voicegate.engine.checkpoint.tokenizer import END_OF_PROMPT, add_plain_tokens, build_tokenizer
from voicegate.engine.checkpoint.upstream_yaml import parse_upstream_yaml
from voicegate.engine.families.stepaudio2.checkpoint.llm import SpeechIds
from voicegate.engine.families.stepaudio2.checkpoint.reading import SPECIAL_TOKENS, SPEECH_TOKENS, stepaudio2_model_json
from voicegate.engine.llm.torch.model import BODY, HEAD, HEAD_BIAS, SPEECH_TABLE, TEXT_TABLE
from voicegate.engine.model.config import LlmConfig, ModelConfig

_YAML: Final = Path(__file__).with_suffix(".yaml")
_ROWS_MULTIPLE: Final = 128  # of the merged vocabulary
_BEHIND_SPEECH: Final = ("<|eos1|>", "<|eos2|>", "<|eos3|>", "<|sos|>", "<|task_id|>")


@dataclass(frozen=True, slots=True)
class StepAudio2Sizes(LlmSizes):
    """The defaults are the released model's."""

    encoder_dim: int = 512
    encoder_layers: int = 6
    up_layers: int = 4
    encoder_heads: int = 8
    encoder_units: int = 2_048
    estimator_dim: int = 512
    estimator_depth: int = 16
    estimator_heads: int = 8
    estimator_head_dim: int = 64
    vocoder_channels: int = 512
    f0_channels: int = 512

    @property
    def num_text_tokens(self) -> int:
        return self.vocab_entries + len(SPECIAL_TOKENS)


def stepaudio2_raw_json(sizes: StepAudio2Sizes, *, name: str, decoding: Decoding = Decoding.ORIGINAL) -> dict[str, Any]:
    """As a conversion of the written directory gives it."""
    vocoder = {
        "conv_pre.bias": torch.empty(sizes.vocoder_channels, device="meta"),
        "f0_predictor.condnet.0.bias": torch.empty(sizes.f0_channels, device="meta"),
    }
    return stepaudio2_model_json(
        parse_upstream_yaml(_yaml_text(sizes)),
        vocoder,
        qwen2_body(_merged_config(sizes), "config.json", is_tied=False),
        SpeechIds(sizes.num_text_tokens, SPEECH_TOKENS),
        name=name,
        end_of_prompt_id=sizes.vocab_entries + SPECIAL_TOKENS.index(END_OF_PROMPT),
        has_bias=True,
        decoding=decoding,
    )


def stepaudio2_config(sizes: StepAudio2Sizes) -> ModelConfig:
    return check_model_json(stepaudio2_raw_json(sizes, name="generated"), name="generated")


def write_stepaudio2_source(
    directory: Path, sizes: StepAudio2Sizes, *, never_stop: bool = False, is_merged: bool = True
) -> Iterator[str]:
    """Write the directory file by file; yields each file's name once it is there. Else than `is_merged`: llm.pt."""
    model = stepaudio2_config(sizes)
    state = generate("llm", model, never_stop=never_stop)
    if is_merged:
        yield from _write_merged(directory / "cosyvoice2_llm", sizes, model.llm, state)
    else:
        yield from _write_tokenizer(directory / "CosyVoice-BlankEN", sizes)
        torch.save(_pt_state(state, model.llm, sizes), directory / "llm.pt")
        yield "llm.pt"
    token2wav = directory / "token2wav"
    token2wav.mkdir(parents=True, exist_ok=True)
    (token2wav / "flow.yaml").write_text(_yaml_text(sizes), encoding="utf-8")
    yield "token2wav/flow.yaml"
    for part, name in (("flow", "flow.pt"), ("vocoder", "hift.pt")):
        torch.save(generate(part, model), token2wav / name)
        yield f"token2wav/{name}"


def _yaml_text(sizes: StepAudio2Sizes) -> str:
    return _YAML.read_text().format(sizes=sizes)


def _merged_config(sizes: StepAudio2Sizes) -> dict[str, Any]:
    num_ids = sizes.num_text_tokens + SPEECH_TOKENS + len(_BEHIND_SPEECH)
    num_rows = -(-num_ids // _ROWS_MULTIPLE) * _ROWS_MULTIPLE
    return {**qwen2_config(sizes), "vocab_size": num_rows, "tie_word_embeddings": False, "use_bias": True}


def _write_tokenizer(directory: Path, sizes: StepAudio2Sizes) -> Iterator[str]:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in tokenizer_files(sizes).items():
        (directory / name).write_text(content, encoding="utf-8")
        yield f"{directory.name}/{name}"


def _write_merged(
    directory: Path, sizes: StepAudio2Sizes, llm: LlmConfig, state: dict[str, torch.Tensor]
) -> Iterator[str]:
    """Hugging Face's layout, as upstream's pretrained_to_huggingface.py leaves it."""
    for _ in _write_tokenizer(directory, sizes):
        pass
    tokenizer = build_tokenizer(directory / "vocab.json", directory / "merges.txt", specials=SPECIAL_TOKENS)
    add_plain_tokens(tokenizer, [*(f"<|s_{index}|>" for index in range(SPEECH_TOKENS)), *_BEHIND_SPEECH])
    (directory / "tokenizer_config.json").unlink()
    (directory / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    yield "cosyvoice2_llm/tokenizer.json"
    config = _merged_config(sizes)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    yield "cosyvoice2_llm/config.json"
    num_rows, first = config["vocab_size"], sizes.num_text_tokens
    table, head = torch.zeros(num_rows, sizes.hidden), torch.zeros(num_rows, sizes.hidden)
    bias = torch.full((num_rows,), -torch.inf)
    table[:first] = state[TEXT_TABLE]
    table[first : first + llm.num_table_rows] = state[SPEECH_TABLE]
    head[first : first + llm.num_speech_rows] = state[HEAD]
    bias[first : first + llm.num_speech_rows] = state[HEAD_BIAS]
    apart = (TEXT_TABLE, SPEECH_TABLE, HEAD, HEAD_BIAS)
    merged = {"model." + name.removeprefix(BODY): tensor for name, tensor in state.items() if name not in apart}
    merged |= {"model.embed_tokens.weight": table, "lm_head.weight": head, "lm_head.bias": bias}
    save_file(
        {name: tensor.bfloat16().contiguous() for name, tensor in merged.items()}, directory / "model.safetensors"
    )
    yield "cosyvoice2_llm/model.safetensors"


def _pt_state(state: dict[str, torch.Tensor], llm: LlmConfig, sizes: StepAudio2Sizes) -> dict[str, torch.Tensor]:
    """Qwen2's own table is longer than what is used of it."""
    text = torch.zeros(sizes.text_rows, sizes.hidden)
    text[: llm.vocab_size] = state[TEXT_TABLE]
    speech, prompt = torch.split(state[SPEECH_TABLE], [llm.num_speech_rows, llm.num_unspoken_rows])
    return {
        **state,
        TEXT_TABLE: text,
        SPEECH_TABLE: speech.clone(),
        "llm_embedding.weight": prompt.clone(),
        "llm.model.lm_head.weight": text,
    }
