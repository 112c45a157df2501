"""Two token2wavs behind one LLM, all on the CPU: both families speak, bit by bit, as on one device.

Each has one utterance: what a batch of several rounds otherwise is not looked at here.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.disaggregated import Driven
from tests.support.golden import TINY_MODEL_DIR
from tests.support.stepaudio2_engine import write_model
from tests.support.tiny_engine import CONFIG
from voicegate.engine.backends.disaggregated.addition import load_all_stages
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.stages import Stages
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.store import load_voices

TEXT = "No."
MAX_TOKENS = 20  # less than a second of speech


def first_family(_: Path) -> Path:
    return TINY_MODEL_DIR


def second_family(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


@pytest.mark.parametrize("family", [first_family, second_family])
def test_they_speak_as_one_device_does(family: Callable[[Path], Path], tmp_path: Path) -> None:
    model_dir = family(tmp_path)
    config, all_stages = two_token2wavs(model_dir)
    assert all_stages[0].llm is all_stages[1].llm
    assert all_stages[0].flow is not all_stages[1].flow
    held = [free(stages) for stages in all_stages]
    together = Driven(all_stages, config)
    names = [together.say(f"u{place}", TEXT) for place in range(2)]
    assert [core.num_live for core in together.several.cores] == [1, 1]
    together.run()
    alone = Driven(all_stages[:1], config)
    spoken = alone.say("alone", TEXT)
    alone.run()
    assert alone.ends() == ["Done"]
    assert alone.heard[spoken].pcm
    for name in names:
        assert together.heard[name].pcm == alone.heard[spoken].pcm
    assert [free(stages) for stages in all_stages] == held


def two_token2wavs(model_dir: Path) -> tuple[EngineConfig, tuple[Stages, ...]]:
    """With a voice of which only the beginning was recorded, and room for few."""
    config = replace(
        CONFIG,
        device="auto",
        llm_device="cpu",
        token2wav_devices=("cpu", "cpu"),
        model_dir=model_dir,
        max_active_clauses=2,
        max_clause_tokens=MAX_TOKENS,
        spare_voices=0,
    )
    model = load_model_config(model_dir)
    voice = load_voices(model_dir, model)["woman"]
    voice = replace(voice, speech_tokens=voice.speech_tokens[:25], mel=voice.mel[:50])
    return config, load_all_stages(config, model, {"woman": voice})


def free(stages: Stages) -> tuple[int, int]:
    return stages.llm.num_free_slots, stages.flow.num_free_blocks
