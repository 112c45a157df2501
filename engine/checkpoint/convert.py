"""An upstream directory -> a model directory that the engine loads: what is made of what, in which order."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import torch

from voicegate.engine import additions
from voicegate.engine.checkpoint.checkpoint import Checkpoint, State
from voicegate.engine.checkpoint.constants import flow_noise_bytes, write_flow_noise
from voicegate.engine.checkpoint.conversion import CheckpointError, ConvertOptions, Progress
from voicegate.engine.checkpoint.cosyvoice3 import read_cosyvoice3
from voicegate.engine.checkpoint.directory import Item, bytes_item, check_place, check_space, disk_of, write_directory
from voicegate.engine.checkpoint.merged_hf import merged_items
from voicegate.engine.checkpoint.shapes import expected_shapes, optional_shapes
from voicegate.engine.checkpoint.source import Source, fingerprint, load_pickle
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
from voicegate.engine.llm.torch.model import TIED_TEXT_HEAD
from voicegate.engine.load.family import PARTS
from voicegate.engine.model.config import COSYVOICE3, ModelConfig
from voicegate.engine.model.upstream_kinds import family_of_source

# Raised when the same source would give another file: finished files of older versions are then made again.
_RECIPE_VERSION: Final = 1


def convert(source_dir: Path, target_dir: Path, options: ConvertOptions, progress: Progress) -> None:
    """Raises CheckpointError before anything is written where the source does not fit; see write_directory for after.

    Where `target_dir` is there already, finished and of the same source and options, it is verified and kept.
    """
    target_dir = target_dir.resolve()  # a link stays one, to the finished directory
    merged_dir = options.merged_hf_dir.resolve() if options.merged_hf_dir is not None else None
    for place in (target_dir, merged_dir):
        if place is not None:
            check_place(place)
    checkpoint = read_checkpoint(source_dir, options)
    for remark in checkpoint.remarks:
        progress.remark(remark)
    plans = {target_dir: list(model_items(checkpoint, target_dir, options, progress))}
    if merged_dir is not None:
        if merged_dir in plans:
            raise CheckpointError(f"{merged_dir} cannot be the model directory and the merged checkpoint's at once")
        if checkpoint.model.family != COSYVOICE3:
            raise CheckpointError(
                "--merged-hf is made of CosyVoice3: the merged LLM of CosyVoice2 is upstream's own file"
            )
        items = merged_items(
            checkpoint.model.llm,
            checkpoint.raw["llm"]["qwen2"],
            checkpoint.states["llm"],
            checkpoint.tokenizer.to_str(),
            fingerprint(*checkpoint.origins["llm"]),
        )
        plans[merged_dir] = list(items)
    check_space(plans)
    for directory, planned in plans.items():
        write_directory(directory, planned, progress)
    (target_dir / "voices").mkdir(exist_ok=True)


def read_checkpoint(source_dir: Path, options: ConvertOptions) -> Checkpoint:
    """Reads a checkpoint of either family. Raises CheckpointError; UnfitTensors with the faults of all weights
    files."""
    if not source_dir.is_dir():
        raise CheckpointError(f"{source_dir} is no directory")
    directory = source_dir.resolve()
    family = family_of_source(directory)
    if family == COSYVOICE3:
        return read_cosyvoice3(Source(directory, options.llm_file), options)
    try:
        checkpoint: Checkpoint = additions.load(family, "checkpoint.reading").read_checkpoint(directory, options)
    except additions.MissingAddition as error:
        raise CheckpointError(f"{directory} cannot be converted: {error}") from error
    return checkpoint


def model_items(
    checkpoint: Checkpoint, target_dir: Path, options: ConvertOptions, progress: Progress
) -> Iterator[Item]:
    """The files of a model directory; model.json, without which nothing loads it, is the last."""
    for part in PARTS:
        yield _weights_item(checkpoint, part, options.dtype_of(part))
    yield bytes_item("tokenizer.json", checkpoint.tokenizer.to_str().encode())
    if checkpoint.has_upstream_noise:
        yield Item(
            "flow_noise.safetensors",
            {"noise": _RECIPE_VERSION},
            flow_noise_bytes(),
            lambda path, advance: write_flow_noise(path, advance, progress),
        )
    yield from _voice_items(checkpoint, progress)
    for name, path in checkpoint.onnx.items():
        copies = path.stat().st_dev != disk_of(target_dir)
        yield Item(name, {"from": fingerprint(path)}, path.stat().st_size, partial(copy_file, path), copies)
    yield bytes_item("model.json", json.dumps(checkpoint.raw, indent=1, ensure_ascii=False).encode() + b"\n")


def _weights_item(checkpoint: Checkpoint, part: str, dtype: str) -> Item:
    entries = list(weights_entries(part, checkpoint.model, checkpoint.states[part], DTYPES[dtype]))
    return Item(
        f"{part}.safetensors",
        {"from": fingerprint(*checkpoint.origins[part]), "dtype": dtype, "version": _RECIPE_VERSION},
        file_bytes(entries),
        lambda path, advance: write_safetensors(path, entries, advance=advance),
    )


def weights_entries(part: str, model: ModelConfig, state: State, dtype: torch.dtype) -> Iterator[Entry]:
    """Entries of an upstream state dict for the file, in `dtype` where that does no harm (storage.stored_dtype)."""
    for name in expected_shapes(part, model) | optional_shapes(part, model):
        if name == TIED_TEXT_HEAD or name not in state:
            continue
        tensor = state[name]
        shape = tuple(tensor.shape)
        stored = stored_dtype(name, shape, dtype)
        yield Entry(name, shape, stored, partial(cast, name, tensor, stored))


def _voice_items(checkpoint: Checkpoint, progress: Progress) -> Iterator[Item]:
    path = checkpoint.speakers
    if path is None:
        return
    try:
        speakers = load_pickle(path)
    except CheckpointError as error:  # voices can be made of recordings too, so this ends no conversion
        progress.remark(f"no voices from {path.name}: {error}")
        return
    for voice in speaker_voices(speakers, checkpoint.tokenizer, checkpoint.model):
        if isinstance(voice, str):
            progress.remark(voice)
            continue
        yield Item(
            f"voices/{voice.name}.safetensors",
            {"from": fingerprint(path), "version": _RECIPE_VERSION},
            file_bytes(voice.entries, voice.texts),
            partial(_write_voice, voice),
            is_users=True,
        )


def _write_voice(voice: SpeakerVoice, path: Path, advance: Advance) -> Written:
    return write_safetensors(path, voice.entries, texts=voice.texts, advance=advance)
