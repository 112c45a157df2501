"""Sizes and constants of one checkpoint, read from `model.json` of a model directory. No torch.

The keys are the constructor arguments of upstream's modules, so that a checkpoint's own configuration can be
carried over unchanged. Anything that a module needs to know about its size comes from here, never from code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from voicegate.engine import units

# Of `voicegate convert` (engine.checkpoint.directory): the name of a directory that is still being written ends so,
# and what is finished in it is listed in this file.
PARTIAL_SUFFIX: Final = ".partial"
JOURNAL_FILE: Final = "conversion.json"


# Blocks that the flow's kernels and tables are made for: the estimator's mask is block-causal in so many mel frames
# (`static_chunk_size` of the checkpoint).
FLOW_BLOCK_FRAMES: Final = 50


class ModelConfigError(ValueError):
    """model.json is missing, unreadable or describes something that this engine cannot run."""


@dataclass(frozen=True, slots=True)
class LlmConfig:
    """A Qwen2-class decoder body with CosyVoice's speech table and head beside it."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    rope_theta: float
    rms_norm_eps: float
    speech_token_size: int  # real speech ids are 0 .. speech_token_size - 1
    mix_ratio: tuple[int, int]  # bistream: text tokens, then speech tokens
    sos_id: int
    eos_id: int
    task_id: int
    fill_id: int
    end_of_prompt_id: int | None  # in the text table: <|endofprompt|>, of every text; None: of none
    num_special_rows: int = 200  # of the speech table and the head, behind the speech ids: special and unused ids

    @property
    def num_speech_rows(self) -> int:
        """Rows of the speech table and of the head."""
        return self.speech_token_size + self.num_special_rows


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """Repetition-aware sampling (VALL-E 2, arXiv:2406.05370) as CosyVoice sets it."""

    top_p: float = 0.8
    top_k: int = 25
    window: int = 10
    tau_r: float = 0.1


@dataclass(frozen=True, slots=True)
class EstimatorConfig:
    dim: int
    depth: int
    num_heads: int
    head_dim: int
    ff_mult: int
    block_frames: int  # `static_chunk_size`


@dataclass(frozen=True, slots=True)
class FlowConfig:
    vocab_size: int
    speaker_dim: int
    lookahead_tokens: int
    pre_lookahead_channels: int
    cfg_rate: float
    estimator: EstimatorConfig
    num_euler_steps: int = 10


@dataclass(frozen=True, slots=True)
class VocoderConfig:
    base_channels: int
    f0_channels: int
    num_harmonics: int  # overtones; the fundamental comes on top
    sine_amplitude: float
    noise_std: float
    voiced_threshold_hz: float
    upsample_rates: tuple[int, ...]
    upsample_kernels: tuple[int, ...]
    stft_size: int
    stft_hop: int
    resblock_kernels: tuple[int, ...]
    resblock_dilations: tuple[tuple[int, ...], ...]
    source_resblock_kernels: tuple[int, ...]
    source_resblock_dilations: tuple[tuple[int, ...], ...]
    leaky_relu_slope: float
    audio_limit: float
    look_right_frames: int  # of conv_pre; 0: it looks both ways alike


@dataclass(frozen=True, slots=True)
class ModelConfig:
    name: str
    family: str
    llm: LlmConfig
    flow: FlowConfig
    vocoder: VocoderConfig
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    silent_tokens: frozenset[int] = frozenset()
    max_silent_run: int = 5  # silent tokens in a row that reach the flow; the rest are dropped
    # Before the text of a pass; with <|endofprompt|> where every text has it, else without.
    instruct_prefix: str = "You are a helpful assistant.<|endofprompt|>"
    default_voice: str | None = None
    default_mode: str = "incremental"
    languages: tuple[str, ...] = ("en", "zh")
    supports_instruct: bool = False  # whether it was trained to follow an instruction before <|endofprompt|>


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
    return f"{model_dir} is not a voicegate model directory"


def parse_model_config(raw: Mapping[str, Any], *, name: str) -> ModelConfig:
    """Build the configuration from model.json's content. Raises KeyError, TypeError or ValueError."""
    if raw["model_type"] != "cosyvoice3":
        raise ValueError(f"model_type is {raw['model_type']!r}; this engine runs 'cosyvoice3'")
    rates = (raw["sample_rate"], raw["token_frame_rate"])
    if rates != (units.SAMPLE_RATE_HZ, units.TOKEN_RATE_HZ):
        raise ValueError(f"sample_rate and token_frame_rate are {rates}; this engine runs 24000 Hz and 25 Hz")
    sampling = raw["sampling"]
    return ModelConfig(
        name=raw.get("name", name),
        family=raw["model_type"],
        llm=_llm_config(raw),
        flow=_flow_config(raw["flow"]),
        vocoder=vocoder_config(raw["hift"], f0_channels=raw["hift"]["f0_predictor"]["cond_channels"]),
        sampling=SamplingConfig(
            top_p=sampling["top_p"],
            top_k=sampling["top_k"],
            window=sampling["win_size"],
            tau_r=sampling["tau_r"],
        ),
        silent_tokens=frozenset(raw["silent_tokens"]),
        instruct_prefix=raw["instruct_prefix"],
        default_voice=raw.get("default_voice"),
        default_mode=raw.get("default_mode", "incremental"),
        languages=tuple(raw.get("languages", ("en", "zh"))),
        supports_instruct=bool(raw.get("supports_instruct", False)),
    )


def _llm_config(raw: Mapping[str, Any]) -> LlmConfig:
    body = raw["llm"]["qwen2"]
    text_per_mix, speech_per_mix = raw["llm"]["mix_ratio"]
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
        speech_token_size=raw["llm"]["speech_token_size"],
        mix_ratio=(text_per_mix, speech_per_mix),
        sos_id=raw["sos_token_id"],
        eos_id=raw["eos_token_id"],
        task_id=raw["task_token_id"],
        fill_id=raw["fill_token_id"],
        end_of_prompt_id=raw["endofprompt_token_id"],
    )


def _flow_config(raw: Mapping[str, Any]) -> FlowConfig:
    estimator = raw["decoder"]["estimator"]
    if estimator["static_chunk_size"] != FLOW_BLOCK_FRAMES:
        raise ValueError(f"static_chunk_size is {estimator['static_chunk_size']}, not {FLOW_BLOCK_FRAMES}")
    return FlowConfig(
        vocab_size=raw["vocab_size"],
        speaker_dim=raw["spk_embed_dim"],
        lookahead_tokens=raw["pre_lookahead_len"],
        pre_lookahead_channels=raw["pre_lookahead_layer"]["channels"],
        cfg_rate=raw["decoder"]["cfm_params"]["inference_cfg_rate"],
        estimator=EstimatorConfig(
            dim=estimator["dim"],
            depth=estimator["depth"],
            num_heads=estimator["heads"],
            head_dim=estimator["dim_head"],
            ff_mult=estimator["ff_mult"],
            block_frames=estimator["static_chunk_size"],
        ),
    )


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
