"""Upstream's configuration becomes model.json; another generation of the model, or another solver, is refused."""

from typing import Any

import pytest

from voicegate.bench.full_size.source import Sizes, qwen2_config, raw_model_json, yaml_text
from voicegate.engine.checkpoint.conversion import CheckpointError
from voicegate.engine.checkpoint.model_json import check_model_json, model_json
from voicegate.engine.checkpoint.upstream_yaml import parse_upstream_yaml


def converted(old: str = "", new: str = "", **qwen2: Any) -> dict[str, Any]:
    """With one line of the yaml, or keys of the Qwen2 configuration, changed; None takes a key away."""
    text = yaml_text(Sizes())
    assert old in text
    body = {key: value for key, value in {**qwen2_config(Sizes()), **qwen2}.items() if value is not None}
    return model_json(parse_upstream_yaml(text.replace(old, new, 1)), body, name="m", end_of_prompt_id=151_646)


def test_full_size() -> None:
    raw = raw_model_json(Sizes(), name="full")
    model = check_model_json(raw, name="ignored")
    assert (model.name, model.family, model.supports_instruct) == ("full", "cosyvoice3", True)
    assert (model.languages[0], len(model.languages)) == ("en", 10)
    llm = model.llm
    assert (llm.hidden_size, llm.num_layers, llm.num_heads, llm.num_kv_heads, llm.head_dim) == (896, 24, 14, 2, 64)
    assert (llm.vocab_size, llm.num_speech_rows, llm.end_of_prompt_id) == (151_936, 6_761, 151_646)
    assert (llm.sos_id, llm.eos_id, llm.task_id, llm.fill_id, llm.mix_ratio) == (6561, 6562, 6563, 6564, (5, 15))
    assert (llm.rope_theta, llm.rms_norm_eps, llm.max_positions) == (1e6, 1e-6, 32_768)
    assert (model.flow.estimator.depth, model.flow.estimator.block_frames, model.flow.cfg_rate) == (22, 50, 0.7)
    assert (model.vocoder.base_channels, model.vocoder.f0_channels) == (512, 512)
    assert (model.sampling.top_k, model.sampling.window, len(model.silent_tokens)) == (25, 10, 11)
    assert not [key for key in str(raw).split("'") if key.startswith("!")]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("llm.CosyVoice3LM", "llm.CosyVoice2LM", "llm builds cosyvoice.llm.llm.CosyVoice2LM; this engine runs CosyV"),
        ("ras_sampling", "nucleus_sampling", "llm.sampling is cosyvoice.utils.common.nucleus_sampling"),
        ("solver: 'euler'", "solver: 'midpoint'", "cfm_params.solver is 'midpoint'; this engine runs 'euler'"),
        ("token_mel_ratio: 2\n", "token_mel_ratio: 4\n", "flow.token_mel_ratio is 4"),
        ("chunk_size: 25", "number: 25", "!ref <chunk_size> points at nothing"),
        ("sample_rate: 24000", "sample_rate: 22050", "hift.sampling_rate is 22050"),
        ("    hop_size: 480\n", "", "lacks or garbles 'hop_size'"),
        ("hift: !new:", "hift: 3\nother: !new:", "lacks or garbles"),
    ],
)
def test_other_models_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        converted(old, new)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"model_type": "llama"}, "model_type"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_scaling": {"type": "yarn"}}, "rope_scaling"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings"),
        ({"hidden_size": 1024}, "hidden_size"),
    ],
)
def test_another_language_model_is_refused(change: dict[str, Any], fault: str) -> None:
    with pytest.raises(CheckpointError, match=f"not the Qwen2 that CosyVoice uses: {fault}$"):
        converted(**change)


@pytest.mark.parametrize("value", [[], "896", 0, True, 1.5])
def test_a_size_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json lacks or garbles max_position_embeddings, which is "):
        converted(max_position_embeddings=value)


def test_rotary_base_as_newer_transformers_write_it() -> None:
    raw = converted(rope_theta=None, rope_parameters={"rope_theta": 5e5, "rope_type": "default"})
    assert raw["llm"]["qwen2"]["rope_theta"] == 5e5


def test_what_the_engine_cannot_read_is_named() -> None:
    raw = raw_model_json(Sizes(), name="full")
    with pytest.raises(CheckpointError, match="lacks 'sos_token_id'"):
        check_model_json({key: value for key, value in raw.items() if key != "sos_token_id"}, name="m")
    with pytest.raises(CheckpointError, match="not one that this engine runs: model_type is 'x'"):
        check_model_json({**raw, "model_type": "x"}, name="m")
