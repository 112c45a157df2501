"""model.json of a model directory, read: each value checked, or refused by its name. No torch.

The keys are the constructor arguments of upstream's modules, so that a checkpoint's own configuration can be
carried over unchanged.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from voicegate.engine import additions, units
from voicegate.engine.model.config import (
    COSYVOICE3,
    EULER_STEPS,
    FLOW_BLOCK_FRAMES,
    EstimatorConfig,
    FlowConfig,
    HeadBias,
    LlmConfig,
    ModelConfig,
    ModelConfigError,
    PenaltySamplingConfig,
    Sampling,
    SamplingConfig,
    StopRule,
    VocoderConfig,
)
from voicegate.engine.model.upstream_kinds import remedy

# Suffix of `voicegate convert` (engine.checkpoint.directory): the name of a directory that is still being written ends
# so, and its finished parts are listed in this file.
PARTIAL_SUFFIX: Final = ".partial"
JOURNAL_FILE: Final = "conversion.json"


def load_model_config(model_dir: Path) -> ModelConfig:
    """Read `model_dir/model.json`. Raises ModelConfigError naming the file and the key."""
    path = model_dir / "model.json"
    try:
        raw = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError as error:
        raise ModelConfigError(f"{path} is missing: {_why_missing(model_dir)}") from error
    except msgspec.DecodeError as error:
        raise ModelConfigError(f"{path} is not valid JSON: {error}") from error
    except RecursionError as error:
        raise ModelConfigError(f"{path} is nested too deeply to be a model's configuration") from error
    try:
        return parse_model_config(raw, name=model_dir.name)
    except KeyError as error:
        raise ModelConfigError(f"{path} lacks the key {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelConfigError(f"{path}: {error}") from error


def _why_missing(model_dir: Path) -> str:
    partial = model_dir.with_name(model_dir.name + PARTIAL_SUFFIX)
    if (model_dir / JOURNAL_FILE).exists() or (partial / JOURNAL_FILE).exists():
        return "its conversion was not finished; run `voicegate convert` again, it goes on where it stopped"
    if not model_dir.is_dir():
        return f"{model_dir} is no directory"
    what_to_do = remedy(model_dir)
    return f"{model_dir} is not a voicegate model directory{f'; {what_to_do}' if what_to_do else ''}"


def parse_model_config(raw: Mapping[str, Any], *, name: str) -> ModelConfig:
    """Build the configuration from model.json's content. Raises KeyError, TypeError or ValueError."""
    family = raw["model_type"]
    families = (COSYVOICE3, *additions.names("family"))
    if family not in families:
        raise ValueError(f"model_type is {family!r}; this engine runs {' and '.join(map(repr, families))}")
    rates = (raw["sample_rate"], raw["token_frame_rate"])
    if rates != (units.SAMPLE_RATE_HZ, units.TOKEN_RATE_HZ):
        raise ValueError(f"sample_rate and token_frame_rate are {rates}; this engine runs 24000 Hz and 25 Hz")
    token2wav = cosyvoice3_token2wav if family == COSYVOICE3 else additions.load(family, "config").token2wav
    return ModelConfig(
        name=raw.get("name", name),
        family=family,
        llm=llm_config(raw),
        **token2wav(raw),
        sampling=_sampling_config(raw["sampling"]),
        silent_tokens=frozenset(raw["silent_tokens"]),
        instruct_prefix=raw["instruct_prefix"],
        default_voice=raw.get("default_voice"),
        default_mode=raw.get("default_mode", "incremental"),
        languages=tuple(raw.get("languages", ("en", "zh"))),
        mel_top_hz=(raw.get("mel") or {}).get("fmax") or units.SAMPLE_RATE_HZ / 2,
        supports_instruct=bool(raw.get("supports_instruct", False)),
    )


def cosyvoice3_token2wav(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of ModelConfig. A family's `config.token2wav` does the same for its own section."""
    hift = raw["hift"]
    return {
        "flow": _flow_config(raw["flow"]),
        "vocoder": vocoder_config(hift, f0_channels=hift["f0_predictor"]["cond_channels"]),
    }


def _sampling_config(raw: Mapping[str, Any]) -> Sampling:
    match raw.get("kind", "repetition-aware"):
        case "repetition-aware":
            return SamplingConfig(top_p=raw["top_p"], top_k=raw["top_k"], window=raw["win_size"], tau_r=raw["tau_r"])
        case "repetition-penalty":
            return PenaltySamplingConfig(
                temperature=raw["temperature"],
                top_p=raw["top_p"],
                top_k=raw["top_k"],
                repetition_penalty=raw["repetition_penalty"],
            )
        case kind:
            raise ValueError(f"sampling.kind is {kind!r}; this engine has repetition-aware and repetition-penalty")


def llm_config(raw: Mapping[str, Any]) -> LlmConfig:
    """Raises KeyError, TypeError or ValueError."""
    llm = raw["llm"]
    body = llm["qwen2"]
    text_per_mix, speech_per_mix = llm["mix_ratio"]
    return LlmConfig(
        vocab_size=body["vocab_size"],
        hidden_size=body["hidden_size"],
        intermediate_size=body["intermediate_size"],
        num_layers=body["num_hidden_layers"],
        num_heads=body["num_attention_heads"],
        num_kv_heads=body["num_key_value_heads"],
        head_dim=body.get("head_dim", body["hidden_size"] // body["num_attention_heads"]),
        max_positions=body["max_position_embeddings"],
        rope_theta=body["rope_theta"],
        rms_norm_eps=body["rms_norm_eps"],
        speech_token_size=llm["speech_token_size"],
        mix_ratio=(text_per_mix, speech_per_mix),
        sos_id=raw["sos_token_id"],
        eos_id=raw["eos_token_id"],
        task_id=raw["task_token_id"],
        fill_id=raw["fill_token_id"],
        end_of_prompt_id=raw["endofprompt_token_id"],
        needs_end_of_prompt=llm.get("needs_endofprompt", True),
        num_special_rows=llm.get("num_special_rows", 200),
        num_unspoken_rows=llm.get("num_unspoken_rows", 0),
        head_bias=HeadBias(llm.get("head_bias", "absent")),
        stop=_stop_rule(llm.get("stop", {})),
    )


def _stop_rule(raw: Mapping[str, Any]) -> StopRule:
    default = StopRule()
    return StopRule(
        is_eos_alone=raw.get("eos_alone", default.is_eos_alone),
        min_tokens_per_text_token=raw.get("min_token_text_ratio", default.min_tokens_per_text_token),
        max_tokens_per_text_token=raw.get("max_token_text_ratio", default.max_tokens_per_text_token),
        max_tokens=raw.get("max_tokens", default.max_tokens),
    )


def _flow_config(raw: Mapping[str, Any]) -> FlowConfig:
    estimator = raw["decoder"]["estimator"]
    if estimator["static_chunk_size"] != FLOW_BLOCK_FRAMES:
        raise ValueError(f"static_chunk_size is {estimator['static_chunk_size']}, not {FLOW_BLOCK_FRAMES}")
    cfm = raw["decoder"]["cfm_params"]
    return FlowConfig(
        vocab_size=raw["vocab_size"],
        speaker_dim=raw["spk_embed_dim"],
        lookahead_tokens=raw["pre_lookahead_len"],
        pre_lookahead_channels=raw["pre_lookahead_layer"]["channels"],
        cfg_rate=cfm["inference_cfg_rate"],
        num_euler_steps=euler_steps(cfm, "flow.decoder.cfm_params"),
        estimator=EstimatorConfig(
            dim=estimator["dim"],
            depth=estimator["depth"],
            num_heads=estimator["heads"],
            head_dim=estimator["dim_head"],
            ff_mult=estimator["ff_mult"],
            block_frames=estimator["static_chunk_size"],
        ),
    )


def euler_steps(raw: Mapping[str, object], section: str) -> int:
    """`inference_steps` beside `inference_cfg_rate`: a flow that was distilled says how many steps it was made for.

    `section` is where `raw` stands in model.json. Raises ValueError.
    """
    steps = raw.get("inference_steps", EULER_STEPS)
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise ValueError(f"{section}.inference_steps is {steps!r}, not a whole number from 1 on")
    return steps


def vocoder_config(raw: Mapping[str, Any], *, f0_channels: int) -> VocoderConfig:
    """From the constructor arguments of upstream's CausalHiFTGenerator, or of its HiFTGenerator."""
    return VocoderConfig(
        base_channels=raw["base_channels"],
        f0_channels=f0_channels,
        num_harmonics=raw["nb_harmonics"],
        sine_amplitude=raw["nsf_alpha"],
        noise_std=raw["nsf_sigma"],
        voiced_threshold_hz=raw["nsf_voiced_threshold"],
        upsample_rates=tuple(raw["upsample_rates"]),
        upsample_kernels=tuple(raw["upsample_kernel_sizes"]),
        stft_size=raw["istft_params"]["n_fft"],
        stft_hop=raw["istft_params"]["hop_len"],
        resblock_kernels=tuple(raw["resblock_kernel_sizes"]),
        resblock_dilations=tuple(tuple(row) for row in raw["resblock_dilation_sizes"]),
        source_resblock_kernels=tuple(raw["source_resblock_kernel_sizes"]),
        source_resblock_dilations=tuple(tuple(row) for row in raw["source_resblock_dilation_sizes"]),
        leaky_relu_slope=raw["lrelu_slope"],
        audio_limit=raw["audio_limit"],
        look_right_frames=raw.get("conv_pre_look_right", 0),
    )
