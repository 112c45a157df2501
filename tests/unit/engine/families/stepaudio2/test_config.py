"""The section `token2wav` of model.json: sizes of the golden modules, of the released ones, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.golden import TINY_MODEL_DIR
from tests.support.stepaudio2 import flow_config, golden_vocoder_config, tiny_section
from voicegate.engine.families.stepaudio2.config import stepaudio2_flow_config
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.upstream_kinds import COSYVOICE2_STEPAUDIO2


def test_a_model_of_this_family_is_known_by_its_type(tmp_path: Path) -> None:
    raw = json.loads((TINY_MODEL_DIR / "model.json").read_text())
    raw |= {"model_type": "cosyvoice2-stepaudio2", "token2wav": tiny_section()}
    del raw["flow"], raw["hift"]
    (tmp_path / "model.json").write_text(json.dumps(raw))
    model = load_model_config(tmp_path)
    assert model.family == COSYVOICE2_STEPAUDIO2
    assert (model.flow, model.vocoder) == (flow_config(), golden_vocoder_config())


def test_the_section_may_say_how_many_steps_the_flow_takes() -> None:
    section = tiny_section()
    assert stepaudio2_flow_config(section).num_euler_steps == 10
    section["decoder"]["inference_steps"] = 5
    assert stepaudio2_flow_config(section).num_euler_steps == 5


@pytest.mark.parametrize(
    ("part", "key", "value", "message"),
    [
        ("encoder", "input_layer", "conv2d", "encoder.input_layer is 'conv2d', not 'linear'"),
        ("encoder", "up_stride", 4, "encoder.up_stride is 4, not 2"),
        ("flow", "input_size", 64, "must be equal"),
        ("decoder", "inference_steps", -1, "decoder.inference_steps is -1, not a whole number"),
        ("estimator", "in_channels", 240, r"\(80, 240, 80\), not \(80, 320, 80\)"),
    ],
)
def test_another_network_is_refused(part: str, key: str, value: Any, message: str) -> None:
    section = tiny_section()
    section[part][key] = value
    with pytest.raises(ValueError, match=message):
        stepaudio2_flow_config(section)
