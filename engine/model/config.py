"""Sizes and constants of one checkpoint, read from `model.json` of a model directory. No torch.

The keys are the constructor arguments of upstream's modules, so that a checkpoint's own configuration can be
carried over unchanged. Anything that a module needs to know about its size comes from here, never from code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, assert_never

import msgspec

from voicegate.engine import units
from voicegate.engine.model.stepaudio2 import StepAudio2FlowConfig, stepaudio2_flow_config

# Of `voicegate convert` (engine.checkpoint.directory): the name of a directory that is still being written ends so,
# and what is finished in it is listed in this file.
PARTIAL_SUFFIX: Final = ".partial"
JOURNAL_FILE: Final = "conversion.json"


# Blocks that the flow's kernels and tables are made for: the estimator's mask is block-causal in so many mel frames
# (`static_chunk_size` of the checkpoint).
FLOW_BLOCK_FRAMES: Final = 50


class ModelConfigError(ValueError):
    """model.json is missing, unreadable or describes something that this engine cannot run."""


class Family(StrEnum):
    """`model_type` of model.json: which models stand behind the seams. docs/models.md has what each can do."""

    COSYVOICE3 = "cosyvoice3"
    COSYVOICE2_STEPAUDIO2 = "cosyvoice2-stepaudio2"  # CosyVoice2's LLM, Step-Audio2's token2wav


class HeadBias(StrEnum):
    """Whether the checkpoint's speech head has a bias, and whether it counts."""

    ABSENT = "absent"
    USED = "used"
    IGNORED = "ignored"  # as by servers whose Qwen2 has none


@dataclass(frozen=True, slots=True)
class StopRule:
    """Where speech ends. Upstream's own for all families; what TensorRT-LLM serves has another (docs/adr/0039)."""

    is_eos_alone: bool = False  # no other special id ends speech: it is fed, counted and not heard
    min_tokens_per_text_token: int = 2  # fewer speech tokens, and `speech_token_size` cannot come up
    max_tokens_per_text_token: int | None = 20  # more, and a sequence that runs on is cut off
    max_tokens: int | None = None  # of a sequence

    def __post_init__(self) -> None:
        if self.max_tokens_per_text_token is None and self.max_tokens is None:
            raise ValueError("stop has neither max_tokens_per_text_token nor max_tokens: speech might never end")

    def max_length(self, num_text_tokens: int, *, num_spoken: int = 0) -> int:
        """Of a sequence that has spoken so much already, not counted against the text."""
        ratio = self.max_tokens_per_text_token
        limits = (self.max_tokens, None if ratio is None else num_spoken + ratio * num_text_tokens)
        return min(limit for limit in limits if limit is not None)


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
    end_of_prompt_id: int | None  # in the text table: <|endofprompt|>, behind an instruction; None: there is none
    needs_end_of_prompt: bool = True  # every text has it, where there is one
    num_special_rows: int = 200  # of the speech table and the head, behind the speech ids: special and unused ids
    num_unspoken_rows: int = 0  # of the speech table alone, behind those: special ids that are fed and never drawn
    head_bias: HeadBias = HeadBias.ABSENT
    stop: StopRule = StopRule()

    @property
    def num_speech_rows(self) -> int:
        """Rows of the head; the speech table begins with as many."""
        return self.speech_token_size + self.num_special_rows

    @property
    def num_table_rows(self) -> int:
        """Rows of the speech table."""
        return self.num_speech_rows + self.num_unspoken_rows


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """Repetition-aware sampling (VALL-E 2, arXiv:2406.05370) as CosyVoice sets it."""

    top_p: float = 0.8
    top_k: int = 25
    window: int = 10
    tau_r: float = 0.1


@dataclass(frozen=True, slots=True)
class PenaltySamplingConfig:
    """Top-k, then top-p within it, where what was fed already has become less likely; as Triton's recipe sets it."""

    temperature: float = 0.8
    top_p: float = 0.95
    top_k: int = 50
    repetition_penalty: float = 1.1  # positive scores are divided by it, negative ones multiplied

    def __post_init__(self) -> None:
        if not (self.temperature > 0 and self.repetition_penalty > 0 and 0 < self.top_p <= 1 and self.top_k >= 1):
            raise ValueError(f"sampling wants top_p in 0..1, top_k from 1 on and the others above 0, not {self}")


Sampling = SamplingConfig | PenaltySamplingConfig


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


Flow = FlowConfig | StepAudio2FlowConfig


@dataclass(frozen=True, slots=True)
class ModelConfig:
    name: str
    family: Family
    llm: LlmConfig
    flow: Flow
    vocoder: VocoderConfig
    sampling: Sampling = field(default_factory=SamplingConfig)
    silent_tokens: frozenset[int] = frozenset()
    max_silent_run: int = 5  # silent tokens in a row that reach the flow; the rest are dropped
    # Before the text of a pass; with <|endofprompt|> where every text has it, else without.
    instruct_prefix: str = "You are a helpful assistant.<|endofprompt|>"
    default_voice: str | None = None
    default_mode: str = "incremental"
    languages: tuple[str, ...] = ("en", "zh")
    mel_top_hz: float = units.SAMPLE_RATE_HZ / 2  # of the mel bins that the flow was trained on
    supports_instruct: bool = False  # whether it was trained to follow an instruction before <|endofprompt|>

    @property
    def cosyvoice3_flow(self) -> FlowConfig:
        """For what is made for CosyVoice3's alone. Raises ModelConfigError for another family's."""
        if not isinstance(self.flow, FlowConfig):
            raise ModelConfigError(f"{self.name} is a {self.family} model; this runs the flow of cosyvoice3 alone")
        return self.flow


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
    family = _family(raw["model_type"])
    rates = (raw["sample_rate"], raw["token_frame_rate"])
    if rates != (units.SAMPLE_RATE_HZ, units.TOKEN_RATE_HZ):
        raise ValueError(f"sample_rate and token_frame_rate are {rates}; this engine runs 24000 Hz and 25 Hz")
    flow, vocoder = _token2wav(family, raw)
    return ModelConfig(
        name=raw.get("name", name),
        family=family,
        llm=_llm_config(raw),
        flow=flow,
        vocoder=vocoder,
        sampling=_sampling_config(raw["sampling"]),
        silent_tokens=frozenset(raw["silent_tokens"]),
        instruct_prefix=raw["instruct_prefix"],
        default_voice=raw.get("default_voice"),
        default_mode=raw.get("default_mode", "incremental"),
        languages=tuple(raw.get("languages", ("en", "zh"))),
        mel_top_hz=(raw.get("mel") or {}).get("fmax") or units.SAMPLE_RATE_HZ / 2,
        supports_instruct=bool(raw.get("supports_instruct", False)),
    )


def _family(model_type: object) -> Family:
    families = {family.value: family for family in Family}
    if model_type not in families:
        raise ValueError(f"model_type is {model_type!r}; this engine runs {' and '.join(map(repr, families))}")
    return families[str(model_type)]


def _token2wav(family: Family, raw: Mapping[str, Any]) -> tuple[Flow, VocoderConfig]:
    match family:
        case Family.COSYVOICE3:
            hift = raw["hift"]
            return _flow_config(raw["flow"]), vocoder_config(hift, f0_channels=hift["f0_predictor"]["cond_channels"])
        case Family.COSYVOICE2_STEPAUDIO2:
            parts = raw["token2wav"]
            vocoder = vocoder_config(parts["hift"], f0_channels=parts["f0_predictor"]["cond_channels"])
            return stepaudio2_flow_config(parts), vocoder
        case _:
            assert_never(family)


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


def _llm_config(raw: Mapping[str, Any]) -> LlmConfig:
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
