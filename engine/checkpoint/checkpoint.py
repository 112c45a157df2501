"""An upstream checkpoint as read and checked: what a conversion writes down, whichever family and layout it came in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from voicegate.engine.model.config import ModelConfig

State = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The states are mapped files where the layout allows it; their names are the engine's."""

    raw: Mapping[str, Any]  # of model.json
    model: ModelConfig
    tokenizer: Tokenizer
    states: Mapping[str, State]  # by part
    origins: Mapping[str, Sequence[Path]]  # by part: the files that it was read from
    onnx: Mapping[str, Path]  # by the name that the engine knows: for making voices
    speakers: Path | None  # spk2info.pt
    has_upstream_noise: bool  # the flow's noise is a table that can be told from others
    remarks: Sequence[str]  # what the owner is told of the files, a line each
