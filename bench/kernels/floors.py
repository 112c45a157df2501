"""Floors: the time that memory or arithmetic alone would take of each piece of the three models; needs no device.

Bytes are those that must come from memory, weights and context, once each; activations may stay in the cache.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from voicegate.bench.full_size.source import Sizes, model_config
from voicegate.engine import units
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.flow.weights import CONV_GROUPS, CONV_TAPS, INPUT_PARTS
from voicegate.engine.model.config import FlowConfig, LlmConfig, VocoderConfig
from voicegate.engine.vocoder.weights import F0_PREFIX, stage_rate, vocoder_shapes

# The released model's sizes.
FULL: Final = model_config(Sizes())

# Read on an H200: copies, and dense products of its matrix units (tf32's from their ratio).
MEMORY_BYTES_PER_S: Final = 4.3e12
FLOP_PER_S: Final = {"float16": 790e12, "bfloat16": 790e12, "tf32": 395e12}

_HALVES: Final = 2  # of classifier-free guidance: each is computed


@dataclass(frozen=True, slots=True)
class Cost:
    num_bytes: float
    flop: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.num_bytes + other.num_bytes, self.flop + other.flop)

    def times(self, number: int) -> "Cost":
        return Cost(self.num_bytes * number, self.flop * number)

    def floor_us(self, precision: str = "bfloat16") -> float:
        return 1e6 * max(self.num_bytes / MEMORY_BYTES_PER_S, self.flop / FLOP_PER_S[precision])


def product(num_lines: int, num_weights: int, *, itemsize: int = 2) -> Cost:
    """Every weight once for each line."""
    return Cost(num_weights * itemsize, 2 * num_lines * num_weights)


def total(costs: Iterable[Cost]) -> Cost:
    return sum(costs, Cost(0))


# --- speech LLM, bfloat16 ---------------------------------------------------------------------------------------


def llm_kernels(config: LlmConfig, num_lines: int, num_attended: float) -> dict[str, Cost]:
    """A launch with so many lines, each of which attends to so many positions."""
    hidden, inner = config.hidden_size, config.intermediate_size
    query, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return {
        "qkv": product(num_lines, hidden * (query + 2 * key)),
        "attend": Cost(num_lines * num_attended * 2 * key * 2, num_lines * num_attended * 4 * query),
        "out": product(num_lines, query * hidden),
        "gate_up": product(num_lines, 2 * hidden * inner),
        "down": product(num_lines, inner * hidden),
        "head": product(num_lines, hidden * config.num_speech_rows),
        "draw": Cost(4 * num_lines * config.num_speech_rows),
    }


def llm_step(config: LlmConfig, num_lines: int, num_samples: int, num_attended: float) -> Cost:
    """`num_lines` through all layers, and `num_samples` of them sampled."""
    layer = llm_kernels(config, num_lines, num_attended)
    once = llm_kernels(config, num_samples, num_attended)
    per_layer = total(layer[name] for name in ("qkv", "attend", "out", "gate_up", "down"))
    return per_layer.times(config.num_layers) + once["head"] + once["draw"]


def llm_prefill(config: LlmConfig, num_prompts: int, num_lines: int, *, lines_per_pass: int) -> Cost:
    """Prompts of `num_lines` positions each, in passes; a line attends to those before it, on average half of all."""
    num_attended = (num_lines + 1) / 2
    remaining, passes = num_prompts * num_lines, []
    while remaining > 0:
        passes.append(llm_step(config, min(remaining, lines_per_pass), num_prompts, num_attended))
        remaining -= lines_per_pass
    return total(passes)


# --- flow, bfloat16 ---------------------------------------------------------------------------------------------


def flow_kernels(config: FlowConfig, num_rows: int, context: int) -> dict[str, Cost]:
    """A launch over both halves of so many whole blocks after `context` frames; a norm has no floor."""
    estimator = config.estimator
    dim, inner = estimator.dim, estimator.num_heads * estimator.head_dim
    lines = _HALVES * num_rows * FRAMES_PER_BLOCK
    attended = context + FRAMES_PER_BLOCK
    convolutions = 2 * dim * (dim // CONV_GROUPS) * CONV_TAPS
    return {
        "attend": Cost(
            _HALVES * num_rows * attended * 2 * inner * 2,
            _HALVES * num_rows * FRAMES_PER_BLOCK * attended * 4 * inner,
        ),
        "qkv": product(lines, 3 * dim * inner),
        "out": product(lines, dim * inner),
        "ff in, gelu": product(lines, estimator.ff_mult * dim * dim),
        "ff out": product(lines, estimator.ff_mult * dim * dim),
        "embed": product(lines, INPUT_PARTS * units.NUM_MELS * dim + convolutions),
        "euler": product(lines, dim * units.NUM_MELS),
    }


def flow_block(config: FlowConfig, num_rows: int, context: int) -> Cost:
    """All Euler steps of a block."""
    kernels = flow_kernels(config, num_rows, context)
    per_layer = total(kernels[name] for name in ("attend", "qkv", "out", "ff in, gelu", "ff out"))
    step = per_layer.times(config.estimator.depth) + kernels["embed"] + kernels["euler"]
    return step.times(config.num_euler_steps)


# --- vocoder ----------------------------------------------------------------------------------------------------


def vocoder_call(config: VocoderConfig, num_streams: int, num_frames: int, *, itemsize: int = 2) -> Cost:
    """Convolutions of a call; the pitch's are in float64 and not counted."""
    costs = []
    for name, shape in vocoder_shapes(config).items():
        if len(shape) == 3 and shape[1:] != (1, 1) and not name.startswith(F0_PREFIX):
            rate, num_taps = _rate_and_taps(config, name, shape[2])
            columns = num_streams * num_frames * rate
            costs.append(Cost(math.prod(shape) * itemsize, 2 * columns * shape[0] * shape[1] * num_taps))
    return total(costs)


def _rate_and_taps(config: VocoderConfig, name: str, num_taps: int) -> tuple[int, int]:
    """A convolution's columns a mel frame, and the taps that differ for each.

    An upsampling reads every column of its input `factor` times over: those taps are one, their weights added up.
    """
    module, _, rest = name.partition(".")
    number = int(rest.partition(".")[0]) if rest[0].isdecimal() else 0
    match module:
        case "conv_pre":
            return 1, num_taps
        case "conv_post":
            return units.SAMPLES_PER_FRAME // config.stft_hop, num_taps
        case "ups":
            return stage_rate(config, number), math.ceil((num_taps - 1) / config.upsample_rates[number]) + 1
        case "source_downs" | "source_resblocks":
            return stage_rate(config, number), num_taps
        case _:
            return stage_rate(config, number // len(config.resblock_kernels)), num_taps
