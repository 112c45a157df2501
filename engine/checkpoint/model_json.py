"""Upstream's configuration -> our model.json: the same constructor arguments, checked, without the training half."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from voicegate.engine.checkpoint.conversion import CheckpointError
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.model_json import parse_model_config

_CLASSES: Final = {
    "llm": "CosyVoice3LM",
    "flow": "CausalMaskedDiffWithDiT",
    "hift": "CausalHiFTGenerator",
}
# Values that the engine has built in: a checkpoint that was trained for something else would speak noise.
_FIXED: Final[Mapping[str, Any]] = {
    "flow.output_size": 80,
    "flow.token_mel_ratio": 2,
    "flow.decoder.cfm_params.solver": "euler",
    "flow.decoder.cfm_params.t_scheduler": "cosine",
    "flow.decoder.estimator.mel_dim": 80,
    "flow.decoder.estimator.out_channels": 80,
    "hift.in_channels": 80,
    "hift.sampling_rate": 24_000,
    "hift.f0_predictor.in_channels": 80,
}
_MEL_KEYS: Final = ("n_fft", "num_mels", "sampling_rate", "hop_size", "win_size", "fmin", "fmax", "center")

# Speech tokens that are silence or breath in the released tokenizer; upstream has the list in its code.
_SILENT_TOKENS: Final = (1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323)
# Languages of its training data, as the paper (arXiv 2505.17589) has them; numbers are written out in the first three.
_LANGUAGES: Final = ("en", "zh", "yue", "ja", "ko", "de", "es", "fr", "it", "ru")
_INSTRUCT_PREFIX: Final = "You are a helpful assistant.<|endofprompt|>"


def model_json(
    upstream: Mapping[str, Any], qwen2: Mapping[str, Any], *, name: str, end_of_prompt_id: int
) -> dict[str, Any]:
    """From cosyvoice3.yaml (see upstream_yaml) and CosyVoice-BlankEN/config.json. Raises CheckpointError."""
    try:
        return _model_json(upstream, qwen2, name=name, end_of_prompt_id=end_of_prompt_id)
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"the configuration lacks or garbles {error}") from error


def check_model_json(raw: Mapping[str, Any], *, name: str) -> ModelConfig:
    """As the engine will read it. Raises CheckpointError."""
    try:
        return parse_model_config(raw, name=name)
    except KeyError as error:
        raise CheckpointError(f"the configuration lacks {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"the configuration is not one that this engine runs: {error}") from error


def _model_json(
    upstream: Mapping[str, Any], qwen2: Mapping[str, Any], *, name: str, end_of_prompt_id: int
) -> dict[str, Any]:
    parts = {part: _built(upstream, part, class_name) for part, class_name in _CLASSES.items()}
    speech_tokens = parts["llm"]["speech_token_size"]
    sampling = parts["llm"].pop("sampling")
    if not str(sampling.get("!name", "")).endswith("ras_sampling"):
        raise CheckpointError(f"llm.sampling is {sampling.get('!name')}; this engine samples by ras_sampling")
    content = {
        "name": name,
        "model_type": "cosyvoice3",
        "default_mode": "incremental",
        "languages": list(_LANGUAGES),
        "supports_instruct": True,
        "sample_rate": upstream["sample_rate"],
        "token_frame_rate": upstream["token_frame_rate"],
        "chunk_size": upstream["chunk_size"],
        "endofprompt_token_id": end_of_prompt_id,
        "instruct_prefix": _INSTRUCT_PREFIX,
        # CosyVoice3LM counts them on from the speech tokens; no configuration names them.
        "sos_token_id": speech_tokens,
        "eos_token_id": speech_tokens + 1,
        "task_token_id": speech_tokens + 2,
        "fill_token_id": speech_tokens + 3,
        "silent_tokens": list(_SILENT_TOKENS),
        "sampling": _plain(sampling),
        "llm": {**_plain(parts["llm"]), "qwen2": _qwen2_of(parts["llm"], qwen2)},
        "flow": _plain(parts["flow"]),
        "hift": _plain(parts["hift"]),
        "mel": {key: upstream["feat_extractor"][key] for key in _MEL_KEYS},
    }
    content["llm"].pop("llm", None)  # Qwen2Encoder's path; what it would load stands under qwen2
    cfm = content["flow"]["decoder"]["cfm_params"]
    content["flow"]["decoder"]["cfm_params"] = cfm.get("content", cfm)  # omegaconf wraps them
    for path, wanted in _FIXED.items():
        value: Any = content
        for key in path.split("."):
            value = value[key]
        if value != wanted:
            raise CheckpointError(f"{path} is {value!r}; this engine runs {wanted!r}")
    return content


def _built(upstream: Mapping[str, Any], part: str, class_name: str) -> dict[str, Any]:
    """The arguments of one of the three models, whose class says which generation of CosyVoice it is."""
    arguments = dict(upstream[part])
    target = str(arguments.pop("!new", "nothing"))
    if target.rpartition(".")[2] != class_name:
        raise CheckpointError(f"{part} builds {target}; this engine runs CosyVoice3, whose {part} is a {class_name}")
    return arguments


def _plain(value: Any) -> Any:
    """Without the names of what upstream would build."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if not key.startswith("!")}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _qwen2_of(llm: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    path = "CosyVoice-BlankEN/config.json"
    body = qwen2_body(config, path, is_tied=True)
    if {llm["llm_input_size"], llm["llm_output_size"]} != {body["hidden_size"]}:
        raise CheckpointError(f"{path} is not the Qwen2 that CosyVoice uses: hidden_size")
    return body


def qwen2_body(config: Mapping[str, Any], path: Path | str, *, is_tied: bool) -> dict[str, Any]:
    """Sizes of Hugging Face's config.json. Raises CheckpointError for another decoder than the engine has."""
    try:
        return _qwen2_body(config, path, is_tied=is_tied)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} lacks or garbles {error}") from error


_QWEN2_SIZES: Final = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
)


def _qwen2_body(config: Mapping[str, Any], path: Path | str, *, is_tied: bool) -> dict[str, Any]:
    rotary = config.get("rope_parameters") or {}  # as transformers 5 writes it
    body = {key: config[key] for key in _QWEN2_SIZES}
    unfit = [f"{key}, which is {value!r}" for key, value in body.items() if type(value) is not int or value < 1]
    if unfit:
        raise TypeError("; ".join(unfit))
    body["rms_norm_eps"] = config["rms_norm_eps"]
    body["head_dim"] = config.get("head_dim") or body["hidden_size"] // body["num_attention_heads"]
    body["rope_theta"] = float(config["rope_theta"] if "rope_theta" in config else rotary["rope_theta"])
    body |= {"hidden_act": config.get("hidden_act", "silu"), "tie_word_embeddings": is_tied}
    wrong = {
        "model_type": config.get("model_type", "qwen2") != "qwen2",
        "hidden_act": body["hidden_act"] != "silu",
        "rope_scaling": bool(config.get("rope_scaling")) or rotary.get("rope_type", "default") != "default",
        "use_sliding_window": bool(config.get("use_sliding_window", False)),
        "tie_word_embeddings": config.get("tie_word_embeddings", is_tied) is not is_tied,
    }
    faults = [key for key, is_wrong in wrong.items() if is_wrong]
    if faults:
        raise CheckpointError(f"{path} is not the Qwen2 that CosyVoice uses: {', '.join(faults)}")
    return body
