"""A speech LLM of full size with random weights, made on the device: what the LLM's kernel benchmarks run."""

from dataclasses import replace

import numpy as np
import torch

from voicegate.bench.kernels.floors import FULL
from voicegate.engine.device.overlap import can_overlap
from voicegate.engine.llm.cuda import packing
from voicegate.engine.llm.cuda.body import DecoderBody
from voicegate.engine.llm.cuda.config import TileTable
from voicegate.engine.llm.cuda.weights import DecoderWeights
from voicegate.engine.llm.torch.model import llm_shapes
from voicegate.engine.model.config import LlmConfig, Sampling, SamplingConfig

FULL_SIZE = FULL.llm
REPETITION_AWARE = SamplingConfig()


def random_state_dict(config: LlmConfig, *, dtype: torch.dtype = torch.bfloat16) -> dict[str, torch.Tensor]:
    """Upstream's names, normal numbers of variance 1 / fan-in, on the CUDA device; special ids are seldom drawn."""
    generator = torch.Generator("cuda").manual_seed(0)

    def normal(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        if name.endswith("norm.weight"):
            return torch.ones(shape, device="cuda", dtype=dtype)
        scale = 1.0 if len(shape) == 1 or "embed" in name else shape[-1] ** -0.5
        return torch.randn(shape, device="cuda", generator=generator).mul_(scale).to(dtype)

    state = {name: normal(name, shape) for name, shape in llm_shapes(config).items()}
    state["llm_decoder.weight"][config.speech_token_size :] = 0
    state["llm_decoder.weight"][: config.speech_token_size] *= 3  # as peaked as a trained model's choices
    return state


def small(config: LlmConfig, num_layers: int) -> LlmConfig:
    """A network of fewer layers and with a short text table."""
    return replace(config, num_layers=num_layers, vocab_size=1024, end_of_prompt_id=3)


def make_body(
    config: LlmConfig,
    weights: DecoderWeights,
    tiles: TileTable,
    *,
    max_lines: int = 1024,
    max_positions: int = 512,
    sampling: Sampling = REPETITION_AWARE,
) -> DecoderBody:
    return DecoderBody(
        config,
        sampling,
        weights,
        num_slots=512,
        max_positions=max_positions,
        max_lines=max_lines,
        max_samples=512,
        tiles=tiles,
        is_pdl=can_overlap(weights.table.device),
    )


def fill_work(body: DecoderBody, num_lines: int, num_samples: int, *, position: int) -> None:
    """Records of `num_lines` decodes, one a slot, at `position`; the first `num_samples` of them are sampled.

    Of more lines than slots the rest are fed behind them: no slot has two that decode.
    """
    words = np.zeros(body.layout.num_words, np.int32)
    lines = body.layout.lines(words, num_lines)
    lines[: body.padding_slot, 0] = packing.USE_LAST_TOKEN
    lines[:, 1] = np.arange(num_lines) % body.padding_slot
    lines[:, 2] = position + np.arange(num_lines) // body.padding_slot
    samples = body.layout.samples(words, num_samples)
    samples[:, 0] = samples[:, 1] = np.arange(num_samples)
    samples[:, 4:] = np.random.default_rng(0).random((num_samples, 2)).view(np.int32)
    body.work.copy_(torch.from_numpy(words))
    body.last_token.copy_(torch.arange(len(body.last_token)) % body.config.speech_token_size)
