"""An upstream directory as it comes: which file is what, and its tensors, read without running anything in them."""

import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from voicegate.engine.checkpoint.conversion import CheckpointError, HoldsMoreThanData
from voicegate.engine.checkpoint.trained import Weights, plain_weights
from voicegate.engine.model.upstream_kinds import COSYVOICE3_CONFIG, remedy_of_source
from voicegate.engine.model.weights import WeightsError, is_lfs_pointer, load_state_dict

TOKENIZER_DIR: Final = "CosyVoice-BlankEN"
OWN_CONFIG: Final = "model.json"
ONNX_FILES: Final = ("speech_tokenizer_v3.onnx", "campplus.onnx")  # for making voices; not needed to speak
SPEAKERS: Final = "spk2info.pt"


@dataclass(frozen=True, slots=True)
class Source:
    """`llm` is the file's name: llm.pt, or llm.rl.pt for the release that reinforcement learning went on with."""

    directory: Path
    llm: str = "llm.pt"

    def weights(self, part: str) -> Path:
        return self.directory / {"llm": self.llm, "flow": "flow.pt", "vocoder": "hift.pt"}[part]

    def tokenizer(self, name: str) -> Path:
        return self.directory / TOKENIZER_DIR / name

    @property
    def config(self) -> Path:
        """Upstream's yaml, or a model.json of our own in its place."""
        upstream = self.directory / COSYVOICE3_CONFIG
        return upstream if upstream.exists() else self.directory / OWN_CONFIG

    @property
    def onnx(self) -> dict[str, Path]:
        """By name."""
        return {name: path for name in ONNX_FILES if (path := self.directory / name).is_file()}

    @property
    def speakers(self) -> Path | None:
        path = self.directory / SPEAKERS
        return path if path.exists() else None

    def check(self) -> None:
        """Raises CheckpointError naming every file that is needed and not there."""
        needed = [self.weights(part) for part in ("llm", "flow", "vocoder")] + [self.config]
        needed += [self.tokenizer(name) for name in ("vocab.json", "merges.txt")]
        if self.config.name == COSYVOICE3_CONFIG:
            needed.append(self.tokenizer("config.json"))
        missing = [os.path.relpath(path, self.directory) for path in needed if not path.is_file()]
        if not missing:
            return
        refuse_directory(self.weights("llm"))
        what_to_do = None if self.config.name == COSYVOICE3_CONFIG else remedy_of_source(self.directory)
        why = what_to_do or f"it lacks {', '.join(missing)}"
        raise CheckpointError(f"{self.directory} is no CosyVoice3 directory: {why}")


def refuse_directory(llm: Path) -> None:
    """Raises CheckpointError where `--llm` names one, as DeepSpeed saves."""
    if llm.is_dir():
        raise CheckpointError(
            f"{llm} is a directory: name the file in it, such as {llm.name}/mp_rank_00_model_states.pt, or what its "
            "zero_to_fp32.py makes"
        )


def fingerprint(*paths: Path) -> dict[str, list[int]]:
    """Tells whether files are still the ones that were read, without reading them again: size and time of change."""
    return {path.name: [path.stat().st_size, path.stat().st_mtime_ns] for path in paths}


def refuse_pointer(path: Path) -> None:
    """Raises CheckpointError for what Git LFS left in a file's place, and for what cannot be read."""
    try:
        is_pointer = is_lfs_pointer(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    if is_pointer:
        raise CheckpointError(f"{path} is a Git LFS pointer, not the file: fetch it with `git lfs pull`")


def load_json(path: Path) -> Any:
    """Raises CheckpointError."""
    refuse_pointer(path)
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from error


def usable_onnx(paths: Mapping[str, Path]) -> tuple[dict[str, Path], list[str]]:
    """Those that can be read, and a remark on each other: only the making of voices needs them."""
    usable: dict[str, Path] = {}
    remarks: list[str] = []
    for name, path in paths.items():
        try:
            refuse_pointer(path)
            usable[name] = path
        except CheckpointError as error:
            remarks.append(f"left out, so no voice can be made with this model: {error}")
    return usable, remarks


def load_pickle(path: Path) -> Any:
    """Loads a file of torch.save, mapped into memory rather than read. Raises CheckpointError for anything but data."""
    refuse_pointer(path)
    try:
        # weights_only: a pickle can call any function; this reader knows tensors and plain containers alone.
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # of garbled pickles it raises whatever comes of them
        objects = _objects_in(path)
        if objects:
            raise HoldsMoreThanData(
                f"{path} holds more than tensors and plain data: {', '.join(objects)}; it was not loaded, since that "
                "could run code"
            ) from error
        raise CheckpointError(
            f"{path} is damaged, or holds more than tensors and plain data; it was not loaded, since that could run "
            "code"
        ) from error


def _objects_in(path: Path) -> list[str]:
    """Objects that the pickle would build and that are no plain data, in words; empty where torch cannot tell."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:  # noqa: BLE001 - as above; and for the format from before torch 1.6
        return []
    return sorted({"numpy arrays or numbers" if name.startswith("numpy.") else name for name in names})


def load_weights(path: Path, part: str) -> Weights:
    """The tensors of one part under upstream's names, from a file as a training program leaves it. See load_pickle."""
    loaded = _load_tensors(path)
    if not isinstance(loaded, dict) or not all(isinstance(key, str) for key in loaded):
        raise CheckpointError(f"{path} holds a {type(loaded).__name__}, not a state dict of named tensors")
    return plain_weights(loaded, path, part)


def _load_tensors(path: Path) -> Any:
    if path.suffix == ".safetensors":
        return load_safetensors(path)
    try:
        return load_pickle(path)
    except HoldsMoreThanData as error:
        raise CheckpointError(f"{error}. Save its tensors alone: torch.save(model.state_dict(), FILE)") from error


def load_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """Mapped. Raises CheckpointError."""
    try:
        return load_state_dict(path)
    except WeightsError as error:
        raise CheckpointError(str(error)) from error
