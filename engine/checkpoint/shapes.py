"""Which tensors a checkpoint must have: worked out from the configuration, and what to say where they are others."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import torch

from voicegate.engine.checkpoint.conversion import UnfitTensors
from voicegate.engine.llm.torch.model import TIED_TEXT_HEAD, llm_shapes
from voicegate.engine.load.family import family_of
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.weights import Shape, shape_faults


def expected_shapes(part: str, model: ModelConfig) -> dict[str, Shape]:
    """All that the engine reads of a part."""
    return llm_shapes(model.llm) if part == "llm" else family_of(model).shapes(part, model)


def optional_shapes(part: str, model: ModelConfig) -> dict[str, Shape]:
    """Shapes that upstream's files have besides."""
    if part == "llm":
        return {TIED_TEXT_HEAD: (model.llm.vocab_size, model.llm.hidden_size)}
    return family_of(model).optional_shapes(part, model)


@cache
def released_shapes(part: str) -> Mapping[str, Shape]:
    """Shapes of the released Fun-CosyVoice3-0.5B: every entry of its files."""
    manifest = json.loads((resources.files(__package__) / "manifest_cosyvoice3.json").read_bytes())
    return {name: tuple(shape) for name, shape in manifest["hift" if part == "vocoder" else part].items()}


def check_tensors(file_name: str, part: str, model: ModelConfig, found: Mapping[str, Any]) -> None:
    """Raises UnfitTensors with everything that is missing, unknown or of another shape."""
    hint = ""
    if _shapes_of(found) == dict(released_shapes(part)):
        hint = "; it is the released CosyVoice3's, so the configuration is of another one"
    check_named(file_name, found, expected_shapes(part, model), optional_shapes(part, model), hint=hint)


def check_named(
    file_name: str,
    found: Mapping[str, Any],
    expected: Mapping[str, Shape],
    optional: Mapping[str, Shape],
    *,
    hint: str = "",
) -> None:
    """Raises UnfitTensors; `hint` goes behind its summary."""
    faults = shape_faults(found, expected, optional)
    if not faults:
        return
    counts = {kind: sum(fault.startswith(kind) for fault in faults) for kind in ("missing", "unknown", "misshaped")}
    counted = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    summary = f"{file_name} does not fit the configuration: {counted} of {len(expected)} tensors{hint}"
    raise UnfitTensors(summary, [f"{file_name}: {fault}" for fault in faults])


def check_parts(model: ModelConfig, found: Mapping[str, tuple[str, Mapping[str, Any]]]) -> None:
    """`check_tensors` of each part's file name and tensors; all before any is refused: one run tells everything."""
    unfit: list[UnfitTensors] = []
    for part, (file_name, state) in found.items():
        try:
            check_tensors(file_name, part, model, state)
        except UnfitTensors as error:
            unfit.append(error)
    raise_all(unfit)


def raise_all(unfit: Sequence[UnfitTensors]) -> None:
    """As one, where there are any."""
    if unfit:
        raise UnfitTensors("; ".join(map(str, unfit)), [fault for error in unfit for fault in error.faults])


def _shapes_of(found: Mapping[str, Any]) -> dict[str, Shape]:
    return {name: tuple(value.shape) for name, value in found.items() if isinstance(value, torch.Tensor)}
