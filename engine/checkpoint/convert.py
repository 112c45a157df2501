"""An upstream CosyVoice3 directory -> a model directory that the engine loads: what is made of what, in which order."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer

from voicegate.engine.checkpoint.constants import flow_noise_bytes, write_flow_noise
from voicegate.engine.checkpoint.directory import Item, bytes_item, check_space, disk_of, write_directory
from voicegate.engine.checkpoint.errors import CheckpointError, UnfitTensors
from voicegate.engine.checkpoint.merged_hf import merged_items
from voicegate.engine.checkpoint.model_json import check_model_json, model_json
from voicegate.engine.checkpoint.options import ConvertOptions
from voicegate.engine.checkpoint.progress import Progress
from voicegate.engine.checkpoint.shapes import PARTS, check_tensors, expected_shapes, optional_shapes
from voicegate.engine.checkpoint.source import OWN_CONFIG, Source, fingerprint, load_json, load_pickle, load_weights
from voicegate.engine.checkpoint.speakers import SpeakerVoice, speaker_voices
from voicegate.engine.checkpoint.storage import (
    DTYPES,
    Advance,
    Entry,
    Written,
    cast,
    copy_file,
    file_bytes,
    stored_dtype,
    write_safetensors,
)
from voicegate.engine.checkpoint.tokenizer import END_OF_PROMPT, build_tokenizer
from voicegate.engine.checkpoint.upstream_yaml import read_upstream_yaml
from voicegate.engine.llm.model import TIED_TEXT_HEAD
from voicegate.engine.model.config import ModelConfig

# Raised when the same source would give another file: finished files of older versions are then made again.
_RECIPE_VERSION: Final = 1

State = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything read from the source and checked. The states are mapped files, upstream's names."""

    source: Source
    raw: Mapping[str, Any]  # of model.json
    model: ModelConfig
    tokenizer: Tokenizer
    states: Mapping[str, State]


def convert(source_dir: Path, target_dir: Path, options: ConvertOptions, progress: Progress) -> None:
    """Raises CheckpointError before anything is written where the source does not fit; see write_directory for after.

    Where `target_dir` is there already, finished and of the same source and options, it is verified and kept.
    """
    checkpoint = read_checkpoint(source_dir, options)
    plans = {target_dir.absolute(): list(model_items(checkpoint, target_dir.absolute(), options, progress))}
    if options.merged_hf_dir is not None:
        merged_dir = options.merged_hf_dir.absolute()
        if merged_dir in plans:
            raise CheckpointError(f"{merged_dir} cannot be the model directory and the merged checkpoint's at once")
        items = merged_items(
            checkpoint.model.llm,
            checkpoint.raw["llm"]["qwen2"],
            checkpoint.states["llm"],
            checkpoint.tokenizer.to_str(),
            fingerprint(checkpoint.source.weights("llm")),
        )
        plans[merged_dir] = list(items)
    check_space(plans)
    for directory, planned in plans.items():
        write_directory(directory, planned, progress)
    (target_dir / "voices").mkdir(exist_ok=True)


def read_checkpoint(source_dir: Path, options: ConvertOptions) -> Checkpoint:
    """Raises CheckpointError; UnfitTensors with the faults of all three weights files."""
    if not source_dir.is_dir():
        raise CheckpointError(f"{source_dir} is no directory")
    source = Source(source_dir.resolve(), options.llm_file)
    source.check()
    tokenizer = build_tokenizer(
        source.tokenizer("vocab.json"), source.tokenizer("merges.txt"), source.tokenizer("tokenizer_config.json")
    )
    raw = _read_config(source, options, tokenizer)
    model = check_model_json(raw, name=source.directory.name)
    if tokenizer.get_vocab_size() > model.llm.vocab_size:
        raise CheckpointError(
            f"the tokenizer has {tokenizer.get_vocab_size()} entries, the LLM's text table {model.llm.vocab_size} rows"
        )
    states = {part: load_weights(source.weights(part), part) for part in PARTS}
    _check_all(source, model, states)
    return Checkpoint(source, raw, model, tokenizer, states)


def model_items(
    checkpoint: Checkpoint, target_dir: Path, options: ConvertOptions, progress: Progress
) -> Iterator[Item]:
    """The files of a model directory; model.json, without which nothing loads it, is the last."""
    source = checkpoint.source
    for part in PARTS:
        yield _weights_item(checkpoint, part, options.dtype_of(part))
    yield bytes_item("tokenizer.json", checkpoint.tokenizer.to_str().encode())
    yield Item(
        "flow_noise.safetensors",
        {"noise": _RECIPE_VERSION},
        flow_noise_bytes(),
        lambda path, advance: write_flow_noise(path, advance, progress),
    )
    yield from _voice_items(checkpoint, progress)
    for path in source.onnx:
        copies = path.stat().st_dev != disk_of(target_dir)
        yield Item(path.name, {"from": fingerprint(path)}, path.stat().st_size, partial(copy_file, path), copies)
    yield bytes_item("model.json", json.dumps(checkpoint.raw, indent=1, ensure_ascii=False).encode() + b"\n")


def _weights_item(checkpoint: Checkpoint, part: str, dtype: str) -> Item:
    entries = list(weights_entries(part, checkpoint.model, checkpoint.states[part], DTYPES[dtype]))
    return Item(
        f"{part}.safetensors",
        {"from": fingerprint(checkpoint.source.weights(part)), "dtype": dtype, "version": _RECIPE_VERSION},
        file_bytes(entries),
        lambda path, advance: write_safetensors(path, entries, advance=advance),
    )


def weights_entries(part: str, model: ModelConfig, state: State, dtype: torch.dtype) -> Iterator[Entry]:
    """What of an upstream state dict goes into the file, in `dtype` where that does no harm (storage.stored_dtype)."""
    for name in expected_shapes(part, model) | optional_shapes(part, model):
        if name == TIED_TEXT_HEAD or name not in state:
            continue
        tensor = state[name]
        shape = tuple(tensor.shape)
        stored = stored_dtype(name, shape, dtype)
        yield Entry(name, shape, stored, partial(cast, name, tensor, stored))


def _read_config(source: Source, options: ConvertOptions, tokenizer: Tokenizer) -> dict[str, Any]:
    (end_of_prompt_id,) = tokenizer.encode(END_OF_PROMPT).ids
    if source.config.name == OWN_CONFIG:
        raw = dict(load_json(source.config))
        if raw.get("endofprompt_token_id") != end_of_prompt_id:
            raise CheckpointError(
                f"{source.config} has {END_OF_PROMPT} as {raw.get('endofprompt_token_id')}, the tokenizer as "
                f"{end_of_prompt_id}"
            )
        return raw | ({"name": options.name} if options.name else {})
    return model_json(
        read_upstream_yaml(source.config),
        load_json(source.tokenizer("config.json")),
        name=options.name or source.directory.name,
        end_of_prompt_id=end_of_prompt_id,
    )


def _check_all(source: Source, model: ModelConfig, states: Mapping[str, State]) -> None:
    """All files before any is refused: one run tells everything."""
    unfit: list[UnfitTensors] = []
    for part in PARTS:
        try:
            check_tensors(source.weights(part).name, part, model, states[part])
        except UnfitTensors as error:
            unfit.append(error)
    if unfit:
        faults = [fault for error in unfit for fault in error.faults]
        raise UnfitTensors("; ".join(map(str, unfit)), faults)


def _voice_items(checkpoint: Checkpoint, progress: Progress) -> Iterator[Item]:
    path = checkpoint.source.speakers
    if path is None:
        return
    for voice in speaker_voices(load_pickle(path), checkpoint.tokenizer, checkpoint.model):
        if isinstance(voice, str):
            progress.remark(voice)
            continue
        yield Item(
            f"voices/{voice.name}.safetensors",
            {"from": fingerprint(path), "version": _RECIPE_VERSION},
            file_bytes(voice.entries, voice.texts),
            partial(_write_voice, voice),
        )


def _write_voice(voice: SpeakerVoice, path: Path, advance: Advance) -> Written:
    return write_safetensors(path, voice.entries, texts=voice.texts, advance=advance)
