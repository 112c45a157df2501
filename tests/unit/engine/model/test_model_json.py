"""model.json: sizes come from the file; what is missing or foreign is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.golden import TINY_MODEL_DIR
from voicegate.engine.model.config import HeadBias, ModelConfigError, PenaltySamplingConfig, StopRule
from voicegate.engine.model.model_json import load_model_config


def test_tiny_model_sizes() -> None:
    model = load_model_config(TINY_MODEL_DIR)
    assert (model.llm.num_layers, model.llm.hidden_size, model.llm.end_of_prompt_id) == (8, 320, 1258)
    assert (model.flow.estimator.depth, model.flow.estimator.dim) == (6, 256)
    assert (model.llm.num_speech_rows, model.default_voice) == (6761, "woman")


PENALTY = {
    "kind": "repetition-penalty",
    "temperature": 0.8,
    "top_p": 0.95,
    "top_k": 50,
    "repetition_penalty": 1.1,
}


def written(tmp_path: Path, content: str) -> Path:
    (tmp_path / "model.json").write_text(content)
    return tmp_path


def changed(path: str, value: Any) -> str:
    raw = json.loads((TINY_MODEL_DIR / "model.json").read_text())
    *parents, key = path.split("/")
    place = raw
    for parent in parents:
        place = place[parent]
    if value is None:
        place.pop(key, None)
    else:
        place[key] = value
    return json.dumps(raw)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", r"model\.json"),
        ('{"model_type":' + "[" * 100_000, "nested too deeply"),
        (changed("model_type", "kokoro"), "model_type is 'kokoro'"),
        (changed("llm/qwen2/hidden_size", None), "lacks the key 'hidden_size'"),
        (changed("sampling/kind", "beam"), "sampling.kind is 'beam'"),
        (changed("sampling", PENALTY | {"temperature": 0}), "the others above 0"),
        (changed("sampling", PENALTY | {"top_p": 1.5}), r"top_p in 0\.\.1"),
        (changed("llm/head_bias", "maybe"), "'maybe' is not a valid HeadBias"),
        (changed("llm/stop", {"max_token_text_ratio": None}), "speech might never end"),
        (changed("sample_rate", 16000), "24000 Hz and 25 Hz"),
        (changed("flow/decoder/estimator/static_chunk_size", 25), "static_chunk_size is 25, not 50"),
        (changed("flow/decoder/cfm_params/inference_steps", 0), "cfm_params.inference_steps is 0, not a whole number"),
        (changed("flow/decoder/cfm_params/inference_steps", 4.5), "cfm_params.inference_steps is 4.5, not a whole"),
        (changed("flow/decoder/cfm_params/inference_steps", "4"), "cfm_params.inference_steps is '4', not a whole"),
    ],
)
def test_unfit_files_are_named(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        load_model_config(written(tmp_path, content))


def test_a_distilled_flow_says_how_many_steps_it_needs(tmp_path: Path) -> None:
    """A released configuration names none: then they are upstream's ten."""
    raw = json.loads((TINY_MODEL_DIR / "model.json").read_text())
    parameters = raw["flow"]["decoder"]["cfm_params"]
    parameters |= {"inference_steps": 5, "inference_cfg_rate": 0.0}
    flow = load_model_config(written(tmp_path, json.dumps(raw))).flow
    assert (flow.num_euler_steps, flow.cfg_rate) == (5, 0.0)
    del parameters["inference_steps"]
    parameters["inference_cfg_rate"] = 0.7
    flow = load_model_config(written(tmp_path, json.dumps(raw))).flow
    assert (flow.num_euler_steps, flow.cfg_rate) == (10, 0.7)


def test_an_llm_may_have_another_layout_and_another_sampling(tmp_path: Path) -> None:
    raw = json.loads((TINY_MODEL_DIR / "model.json").read_text())
    raw["llm"] |= {
        "num_special_rows": 3,
        "num_unspoken_rows": 2,
        "needs_endofprompt": False,
        "head_bias": "ignored",
        "stop": {"eos_alone": True, "min_token_text_ratio": 0, "max_token_text_ratio": None, "max_tokens": 750},
    }
    raw["sampling"] = PENALTY
    model = load_model_config(written(tmp_path, json.dumps(raw)))
    llm = model.llm
    assert (llm.num_speech_rows, llm.num_table_rows) == (6564, 6566)
    assert (llm.needs_end_of_prompt, llm.head_bias) == (False, HeadBias.IGNORED)
    assert llm.stop == StopRule(True, 0, None, 750)
    assert model.sampling == PenaltySamplingConfig()


def test_a_directory_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match="is not a voicegate model directory"):
        load_model_config(tmp_path)
