"""Which tensors a checkpoint must have: worked out from the configuration, and what to say where they are others."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final, assert_never

import torch

from voicegate.engine.checkpoint.errors import UnfitTensors
from voicegate.engine.llm.model import TIED_TEXT_HEAD, llm_shapes
from voicegate.engine.model.config import Flow, FlowConfig, ModelConfig
from voicegate.engine.model.stepaudio2 import StepAudio2FlowConfig
from voicegate.engine.model.weights import Shape, shape_faults
from voicegate.engine.token2wav.flow.weights import ESTIMATOR_PREFIX, INV_FREQ, flow_shapes
from voicegate.engine.token2wav.stepaudio2.flow.weights import flow_shapes as stepaudio2_flow_shapes
from voicegate.engine.token2wav.vocoder.weights import vocoder_shapes

PARTS: Final = ("llm", "flow", "vocoder")

_ROTARY: Final = ESTIMATOR_PREFIX + INV_FREQ


def expected_shapes(part: str, model: ModelConfig) -> dict[str, Shape]:
    """All that the engine reads of a part."""
    match part:
        case "llm":
            return llm_shapes(model.llm)
        case "flow":
            return _flow_shapes(model.flow)
        case _:
            return vocoder_shapes(model.vocoder)


def _flow_shapes(config: Flow) -> dict[str, Shape]:
    match config:
        case FlowConfig():
            return flow_shapes(config)
        case StepAudio2FlowConfig():
            return stepaudio2_flow_shapes(config)
        case _:
            assert_never(config)


def optional_shapes(part: str, model: ModelConfig) -> dict[str, Shape]:
    """What upstream's files hold besides."""
    match part:
        case "llm":
            return {TIED_TEXT_HEAD: (model.llm.vocab_size, model.llm.hidden_size)}
        case "flow" if isinstance(model.flow, FlowConfig):
            return {_ROTARY: (model.flow.estimator.head_dim // 2,)}
        case _:
            return {}


@cache
def released_shapes(part: str) -> Mapping[str, Shape]:
    """Of the released Fun-CosyVoice3-0.5B: every entry of its files."""
    manifest = json.loads((resources.files(__package__) / "manifest_cosyvoice3.json").read_bytes())
    return {name: tuple(shape) for name, shape in manifest["hift" if part == "vocoder" else part].items()}


def check_tensors(file_name: str, part: str, model: ModelConfig, found: Mapping[str, Any]) -> None:
    """Raises UnfitTensors with everything that is missing, unknown or of another shape."""
    expected = expected_shapes(part, model)
    faults = shape_faults(found, expected, optional_shapes(part, model))
    if not faults:
        return
    counts = {kind: sum(fault.startswith(kind) for fault in faults) for kind in ("missing", "unknown", "misshaped")}
    counted = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    summary = f"{file_name} does not fit the configuration: {counted} of {len(expected)} tensors"
    if _shapes_of(found) == dict(released_shapes(part)):
        summary += "; it is the released model's, so the configuration is of another one"
    raise UnfitTensors(summary, [f"{file_name}: {fault}" for fault in faults])


def _shapes_of(found: Mapping[str, Any]) -> dict[str, Shape]:
    return {name: tuple(value.shape) for name, value in found.items() if isinstance(value, torch.Tensor)}
