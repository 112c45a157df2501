"""Sizes and constants of one checkpoint. No torch.

Anything that a module needs to know about its size comes from here, never from code. `model_json` reads them.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from voicegate.engine import units

# `model_type` of model.json: the core's own family. Others are additions. docs/models.md has what each can do.
COSYVOICE3: Final = "cosyvoice3"

# Blocks that the flow's kernels and tables are made for: the estimator's mask is block-causal in so many mel frames
# (`static_chunk_size` of the checkpoint).
FLOW_BLOCK_FRAMES: Final = 50
# From noise to mel. Upstream has them in its code, so no released configuration names them.
EULER_STEPS: Final = 10


class ModelConfigError(ValueError):
    """model.json is missing, unreadable or describes something that this engine cannot run."""


class HeadBias(StrEnum):
    """Whether the checkpoint's speech head has a bias, and whether it counts."""

    ABSENT = "absent"
    USED = "used"
    IGNORED = "ignored"  # as by servers whose Qwen2 has none


@dataclass(frozen=True, slots=True)
class StopRule:
    """Where speech ends. Upstream's own for all families; what TensorRT-LLM serves has another (docs/adr/0017)."""

    is_eos_alone: bool = False  # no other special id ends speech: it is fed, counted and not heard
    min_tokens_per_text_token: int = 2  # fewer speech tokens, and `speech_token_size` cannot come up
    max_tokens_per_text_token: int | None = 20  # more, and a sequence that runs on is cut off
    max_tokens: int | None = None  # of a sequence

    def __post_init__(self) -> None:
        if self.max_tokens_per_text_token is None and self.max_tokens is None:
            raise ValueError("stop has neither max_tokens_per_text_token nor max_tokens: speech might never end")

    def max_length(self, num_text_tokens: int, *, num_spoken: int = 0) -> int:
        """Length of a sequence that has spoken so much already, not counted against the text."""
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
    num_euler_steps: int = EULER_STEPS


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


class Flow(Protocol):
    """The sizes that every family's flow has. The rest is known to the family alone."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def speaker_dim(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ModelConfig:
    name: str
    family: str
    llm: LlmConfig
    flow: Flow
    vocoder: VocoderConfig
    speech_tokenizer: str = "speech_tokenizer_v3.onnx"  # the file that makes a recording's speech tokens
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
            raise ModelConfigError(f"{self.name} is a {self.family} model; this runs the flow of {COSYVOICE3} alone")
        return self.flow
