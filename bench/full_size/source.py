"""A CosyVoice3 checkpoint in upstream's layout with generated weights: any size, nothing downloaded, always the same.

Every parameter comes from its own name (the rule of tests/golden/cosyvoice3/README.md), so two machines make the same
model. It speaks noise; its shapes, its cost and the effect of rounding its weights are those of a real one.
"""

import hashlib
import itertools
import json
import os
import string
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import pre_tokenizers

from voicegate.engine.checkpoint.model_json import check_model_json, model_json
from voicegate.engine.checkpoint.shapes import expected_shapes
from voicegate.engine.checkpoint.tokenizer import END_OF_PROMPT, special_tokens
from voicegate.engine.checkpoint.upstream_yaml import parse_upstream_yaml
from voicegate.engine.flow.estimator import inverse_frequencies
from voicegate.engine.flow.weights import ESTIMATOR_PREFIX, INV_FREQ
from voicegate.engine.llm.torch.model import HEAD, TEXT_TABLE, TIED_TEXT_HEAD
from voicegate.engine.load.family import PARTS
from voicegate.engine.model.config import COSYVOICE3, ModelConfig
from voicegate.engine.units import FRAMES_PER_TOKEN, NUM_MELS

# Factors of the rule: f0 between 0 and 400 Hz, voiced and unvoiced; audio within its limits.
_FACTORS: Final = {"f0_predictor.classifier.weight": 150.0, "conv_post.parametrizations.weight.original0": 0.1}
_SHIFTS: Final = {"conv_post.bias": -1.5}
# With `never_stop`: stop rows of the head are zero and the others this much larger. A zero row still has a chance where
# the sampler falls back to the whole distribution; this makes it about 1e-5 a token. Lower -> speech ends early.
_NEVER_STOP_SHARPNESS: Final = 4.0
_SPACE: Final = "Ġ"  # how byte-level BPE writes a blank

# Structured as upstream's: seeds that are applied, shared values by reference, one of them worked out.
_YAML: Final = Path(__file__).with_suffix(".yaml")

VOICE_NAME: Final = "generated"
_VOICE_TRANSCRIPT: Final = "This prompt was generated, and nobody ever said it."


@dataclass(frozen=True, slots=True)
class LlmSizes:
    """The defaults are those of Qwen2-0.5B, which every release has."""

    vocab_entries: int = 151_643  # of vocab.json, without special tokens
    text_rows: int = 151_936
    hidden: int = 896
    intermediate: int = 4_864
    layers: int = 24
    heads: int = 14
    kv_heads: int = 2


@dataclass(frozen=True, slots=True)
class Sizes(LlmSizes):
    """The defaults are the released CosyVoice3's."""

    flow_channels: int = 1_024
    estimator_dim: int = 1_024
    estimator_depth: int = 22
    estimator_heads: int = 16
    estimator_head_dim: int = 64
    vocoder_channels: int = 512
    f0_channels: int = 512
    cfg_rate: float = 0.7  # strength of the flow's guidance


def raw_model_json(sizes: Sizes, *, name: str) -> dict[str, Any]:
    """As a conversion of the written directory gives it."""
    end_of_prompt_id = sizes.vocab_entries + special_tokens().index(END_OF_PROMPT)
    return model_json(
        parse_upstream_yaml(yaml_text(sizes)), qwen2_config(sizes), name=name, end_of_prompt_id=end_of_prompt_id
    )


def model_config(sizes: Sizes) -> ModelConfig:
    return check_model_json(raw_model_json(sizes, name="generated"), name="generated")


# --- weights ----------------------------------------------------------------------------------------------------


def generate(part: str, model: ModelConfig, *, never_stop: bool = False) -> dict[str, torch.Tensor]:
    """The float32 state dict of a part, CosyVoice3's as its files have it: with tied text head and rotary buffer."""
    shapes = expected_shapes(part, model)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:  # numpy draws without the interpreter's lock
        arrays = pool.map(generated_weight, shapes, shapes.values())
        state = {name: torch.from_numpy(array) for name, array in zip(shapes, arrays, strict=True)}
    if part == "llm" and never_stop:
        state[HEAD] *= _NEVER_STOP_SHARPNESS
        state[HEAD][model.llm.speech_token_size :] = 0
    if model.family != COSYVOICE3:
        return state
    if part == "llm":
        state[TIED_TEXT_HEAD] = state[TEXT_TABLE]
    if part == "flow":
        state[ESTIMATOR_PREFIX + INV_FREQ] = inverse_frequencies(model.cosyvoice3_flow.estimator.head_dim)
    return state


def generated_weight(name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """All arithmetic in float32."""
    value = generated_numbers(name).standard_normal(shape).astype(np.float32)
    if name.endswith("parametrizations.weight.original0"):
        value = np.float32(1) + np.float32(0.1) * np.abs(value)
    elif len(shape) >= 2:
        value *= np.float32(1 / np.sqrt(np.prod(shape[1:])))
    else:
        value *= np.float32(0.1)
        if name.endswith((".weight", ".alpha")):
            value += np.float32(1)
    if name in _FACTORS:
        value *= np.float32(_FACTORS[name])
    if name in _SHIFTS:
        value += np.float32(_SHIFTS[name])
    return value


def generated_voice(
    model: ModelConfig, *, num_tokens: int = 125, transcript: str = _VOICE_TRANSCRIPT
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors and texts of a voice file; see engine.voices.voice. 125 tokens are 5 s."""
    tokens = generated_numbers("voice.speech_tokens").integers(0, model.flow.vocab_size, num_tokens)
    mel = generated_numbers("voice.mel").standard_normal((num_tokens * FRAMES_PER_TOKEN, NUM_MELS)).astype(np.float32)
    embedding = generated_numbers("voice.embedding").standard_normal(model.flow.speaker_dim).astype(np.float32)
    tensors = {"speech_tokens": tokens, "mel": mel, "embedding": embedding}
    texts = {
        "prompt_text": model.instruct_prefix + transcript,
        "transcript": transcript,
        "description": "generated numbers, noise",
    }
    return {name: torch.from_numpy(array) for name, array in tensors.items()}, texts


def generated_numbers(name: str) -> np.random.Generator:
    """Always the same for the same name."""
    return np.random.Generator(np.random.PCG64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")))


# --- the directory ----------------------------------------------------------------------------------------------


def write_source(directory: Path, sizes: Sizes, *, never_stop: bool = False) -> Iterator[str]:
    """Write the directory file by file; yields each file's name once it is there."""
    model = model_config(sizes)
    for name, content in tokenizer_files(sizes).items():
        path = directory / "CosyVoice-BlankEN" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        yield f"{path.parent.name}/{name}"
    (directory / "cosyvoice3.yaml").write_text(yaml_text(sizes), encoding="utf-8")
    yield "cosyvoice3.yaml"
    for part, name in zip(PARTS, ("llm.pt", "flow.pt", "hift.pt"), strict=True):
        torch.save(generate(part, model, never_stop=never_stop), directory / name)
        yield name


def tokenizer_files(sizes: LlmSizes, merges: Sequence[tuple[str, str]] | None = None) -> dict[str, str]:
    """vocab.json, merges.txt, tokenizer_config.json and config.json of a byte-level vocabulary of the right size.

    `merges`: None for pairs of letters, and of blanks with those.
    """
    merges = list(_pair_merges() if merges is None else merges)
    vocab = _vocabulary(sizes.vocab_entries, merges)
    own = special_tokens()[:3]  # Qwen2's
    added = {
        str(sizes.vocab_entries + index): {"content": text, "special": True, "normalized": False}
        for index, text in enumerate(own)
    }
    tokenizer_config = {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": added, "eos_token": own[0]}
    return {
        "vocab.json": json.dumps(vocab, ensure_ascii=False),
        "merges.txt": "\n".join(["#version: 0.2", *(" ".join(pair) for pair in merges), ""]),
        "tokenizer_config.json": json.dumps(tokenizer_config),
        "config.json": json.dumps(qwen2_config(sizes), indent=1),
    }


def _pair_merges() -> list[tuple[str, str]]:
    letters = ["".join(pair) for pair in itertools.product(string.ascii_lowercase, repeat=2)]
    return [(pair[0], pair[1]) for pair in letters] + [(_SPACE, pair) for pair in letters]


def _vocabulary(num_entries: int, merges: list[tuple[str, str]]) -> dict[str, int]:
    """256 bytes, what the merges make, and entries that no text leads to; merges without room are dropped."""
    bytes_ = sorted(pre_tokenizers.ByteLevel.alphabet())
    del merges[max(num_entries - len(bytes_), 0) :]
    entries = bytes_ + ["".join(pair) for pair in merges]
    fillers = [f"{_SPACE}unused{index}" for index in range(num_entries - len(entries))]
    return {text: index for index, text in enumerate(entries + fillers)}


def qwen2_config(sizes: LlmSizes) -> Mapping[str, Any]:
    return {
        "model_type": "qwen2",
        "vocab_size": sizes.text_rows,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "max_position_embeddings": 32_768,
        "rope_theta": 1_000_000.0,
        "rms_norm_eps": 1e-06,
        "hidden_act": "silu",
        "use_sliding_window": False,
        "tie_word_embeddings": True,
    }


def yaml_text(sizes: Sizes) -> str:
    """Text that upstream keeps in cosyvoice3.yaml."""
    return _YAML.read_text().format(sizes=sizes)
