"""A voice that cannot be had is not said to be the model's fault, at a start and where a voice is tuned."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_engine import CONFIG
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import EngineError
from voicegate.engine.load.build import load_engine
from voicegate.engine.load.speaking_pace import measure_pace


@pytest.mark.parametrize(
    "load",
    [
        lambda config: load_engine(config, lambda _: None),
        lambda config: measure_pace(config, "woman", ["Hello."], num_seeds=1, on_said=lambda _, __: None),
    ],
)
def test_a_directory_of_voices_that_is_none(load: Callable[[EngineConfig], Any], tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    with pytest.raises(EngineError, match=f"^cannot load the voices: {missing} is no directory: make it"):
        load(replace(CONFIG, voices_dir=missing, threads=1))
