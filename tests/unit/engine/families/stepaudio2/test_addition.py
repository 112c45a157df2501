"""The second family has no other backend of flow and vocoder: who names one is refused by that name."""

from pathlib import Path

import pytest
import torch

from tests.support.stepaudio2_engine import write_model
from voicegate.engine.interface import EngineError
from voicegate.engine.load.token2wav import check_backend
from voicegate.engine.model.model_json import load_model_config


@pytest.mark.parametrize("part", ["vocoder", "flow"])
@pytest.mark.parametrize("backend", ["cuda", "tensorrt"])
def test_the_other_family_has_one(tmp_path: Path, part: str, backend: str) -> None:
    model = load_model_config(write_model(tmp_path / "model"))
    check_backend(part, "auto", model, torch.device("cuda"))
    message = f"--{part}-backend {backend} runs CosyVoice3's {part} alone; tiny-stepaudio2 is a .* model: use auto"
    with pytest.raises(EngineError, match=message):
        check_backend(part, backend, model, torch.device("cuda"))
