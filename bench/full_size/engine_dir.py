"""A model directory of generated weights, as `make` and `voicegate convert` would give it, and its voices."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer

from voicegate.bench.full_size import natural
from voicegate.bench.full_size.families import AnySizes, raw_json, special_tokens_of
from voicegate.bench.full_size.source import VOICE_NAME, generate, generated_voice, tokenizer_files
from voicegate.engine.checkpoint.constants import flow_noise_bytes, write_flow_noise
from voicegate.engine.checkpoint.conversion import ConvertOptions
from voicegate.engine.checkpoint.convert import weights_entries
from voicegate.engine.checkpoint.directory import Item, bytes_item, write_directory
from voicegate.engine.checkpoint.model_json import check_model_json
from voicegate.engine.checkpoint.shapes import expected_shapes
from voicegate.engine.checkpoint.storage import (
    DTYPES,
    Advance,
    Entry,
    Written,
    file_bytes,
    stored_dtype,
    write_safetensors,
)
from voicegate.engine.checkpoint.tokenizer import build_tokenizer
from voicegate.engine.load.family import PARTS
from voicegate.engine.model.config import COSYVOICE3, ModelConfig
from voicegate.gateway.cli.convert import TerminalProgress

MODEL_NAME: Final = "full-size-generated"


class Ending(Enum):
    """When the LLM's speech ends."""

    DRAWN = "drawn"  # wherever a stop id comes up, within some ten tokens
    NEVER = "never-stop"  # at its length limit
    NATURAL = "natural"  # with its text


def make_engine_dir(target: Path, sizes: AnySizes, options: ConvertOptions, ending: Ending) -> None:
    """At once, without the gigabytes in between."""
    write_directory(target, list(_engine_items(target, sizes, options, ending)), TerminalProgress())


def _engine_items(target: Path, sizes: AnySizes, options: ConvertOptions, ending: Ending) -> Iterator[Item]:
    raw = raw_json(sizes, name=MODEL_NAME, decoding=options.decoding)
    model = check_model_json(raw, name=MODEL_NAME)
    tokenizer = _tokenizer(target, sizes, ending)
    speech_counts = natural.SpeechCounts(model, tokenizer) if ending is Ending.NATURAL else None
    for part in PARTS:
        dtype = options.dtype_of(part)
        recipe = {"generated": asdict(sizes), "dtype": dtype, "ending": ending.value}
        write = partial(_write_generated, part, model, dtype, ending, speech_counts)
        yield Item(f"{part}.safetensors", recipe, _part_bytes(part, model, dtype), write)
    yield bytes_item("tokenizer.json", tokenizer.to_str().encode())
    if model.family == COSYVOICE3:
        write_noise = partial(write_flow_noise, progress=TerminalProgress())
        yield Item("flow_noise.safetensors", {}, flow_noise_bytes(), write_noise)
    if speech_counts is None:
        yield _voice_item(VOICE_NAME, model)
    else:
        for number, prompt in enumerate(natural.prompts(speech_counts), 1):
            yield _voice_item(f"{VOICE_NAME}-{number}", model, **asdict(prompt))
    yield bytes_item("model.json", json.dumps(raw, indent=1).encode() + b"\n")


def _write_generated(
    part: str,
    model: ModelConfig,
    dtype: str,
    ending: Ending,
    speech_counts: natural.SpeechCounts | None,
    path: Path,
    advance: Advance,
) -> Written:
    state = generate(part, model, never_stop=ending is not Ending.DRAWN)
    if part == "llm" and speech_counts is not None:
        natural.teach_lengths(state, model, speech_counts)
    return write_safetensors(path, weights_entries(part, model, state, DTYPES[dtype]), advance=advance)


def _part_bytes(part: str, model: ModelConfig, dtype: str) -> int:
    shapes = expected_shapes(part, model)
    return file_bytes(
        Entry(name, shape, stored_dtype(name, shape, DTYPES[dtype]), partial(torch.empty, shape))
        for name, shape in shapes.items()
    )


def _voice_item(name: str, model: ModelConfig, **prompt: Any) -> Item:
    """`prompt`: of generated_voice."""
    recipe = {"generated": 1, **prompt}
    return Item(f"voices/{name}.safetensors", recipe, 0, partial(write_voice, model, prompt))


def write_voice(model: ModelConfig, prompt: Mapping[str, Any], path: Path, advance: Advance) -> Written:
    """`prompt`: of generated_voice."""
    tensors, texts = generated_voice(model, **prompt)
    entries = [
        Entry(name, tuple(tensor.shape), tensor.dtype, partial(_same, tensor)) for name, tensor in tensors.items()
    ]
    return write_safetensors(path, entries, texts=texts, advance=advance)


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _tokenizer(target: Path, sizes: AnySizes, ending: Ending) -> Tokenizer:
    """Through the files that a conversion reads, which stand beside the target for that long."""
    merges = natural.english_merges() if ending is Ending.NATURAL else None
    scratch = target.with_name(f"{target.name}.tokenizer")
    scratch.mkdir(parents=True, exist_ok=True)
    try:
        for name, content in tokenizer_files(sizes, merges).items():
            (scratch / name).write_text(content, encoding="utf-8")
        return build_tokenizer(scratch / "vocab.json", scratch / "merges.txt", specials=special_tokens_of(sizes))
    finally:
        for path in scratch.iterdir():
            path.unlink()
        scratch.rmdir()
