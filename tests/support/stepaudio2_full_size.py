"""Step-Audio2's flow with random weights and a memory of random context: what its kernels are measured on."""

from collections.abc import Sequence

import numpy as np
import torch

from voicegate.bench.full_size.stepaudio2 import StepAudio2Sizes, stepaudio2_raw_json
from voicegate.engine.checkpoint.conversion import Decoding
from voicegate.engine.families.stepaudio2.config import StepAudio2FlowConfig
from voicegate.engine.families.stepaudio2.flow import memory
from voicegate.engine.families.stepaudio2.flow.chunk_buffers import ChunkRow, Tails
from voicegate.engine.families.stepaudio2.flow.memory import FlowMemory
from voicegate.engine.families.stepaudio2.flow.model import StepAudio2Flow
from voicegate.engine.families.stepaudio2.flow.weights import flow_shapes
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.model_json import parse_model_config
from voicegate.engine.model.weights import Shape


def full_size_model() -> ModelConfig:
    raw = stepaudio2_raw_json(StepAudio2Sizes(), name="full size", decoding=Decoding.ORIGINAL)
    return parse_model_config(raw, name="full size")


def full_size_flow() -> StepAudio2FlowConfig:
    flow = full_size_model().flow
    assert isinstance(flow, StepAudio2FlowConfig)
    return flow


def random_weights(shapes: dict[str, Shape], device: torch.device) -> dict[str, torch.Tensor]:
    generator = torch.Generator(device).manual_seed(0)
    return {
        name: torch.randn(shape, device=device, generator=generator)
        * (0.1 if len(shape) == 1 else torch.Size(shape[1:]).numel() ** -0.5)
        for name, shape in shapes.items()
    }


class StepAudio2Fixture:
    """A model, a memory, and rows whose frames lie one behind the other in it, each row's behind those of the last."""

    def __init__(
        self,
        config: StepAudio2FlowConfig,
        *,
        num_rows: int,
        num_known: int,
        device: torch.device,
        dtype: torch.dtype,
        kv_dtype: torch.dtype | None = None,
    ) -> None:
        self.model = StepAudio2Flow(config, random_weights(flow_shapes(config), device), device=device, dtype=dtype)
        self._blocks_per_row = memory.num_blocks(num_known)
        num_blocks = num_rows * self._blocks_per_row
        self.memory = FlowMemory(config, num_blocks=num_blocks, device=device, dtype=dtype, kv_dtype=kv_dtype)
        self.draw_context()

    def draw_context(self) -> None:
        """Draws equal contexts each time, in each type: chunks leave frames of their own in it."""
        device = self.model.device
        generator = torch.Generator(device).manual_seed(1)
        for part in (self.memory.estimator, self.memory.tokens, self.memory.frames):
            for layer in part:  # torch draws no 8-bit floats
                layer.copy_(torch.randn(layer.shape, device=device, generator=generator))

    def rows(self, known_of_rows: Sequence[int], tokens_of_rows: Sequence[int]) -> list[ChunkRow]:
        """Chunks of so many tokens, at the end of so many frames."""
        model = self.model
        generator = torch.Generator(model.device).manual_seed(2)
        tails = Tails.before_first(model.config, device=model.device, dtype=model.dtype)
        rows = []
        for index, (num_known, num_tokens) in enumerate(zip(known_of_rows, tokens_of_rows, strict=True)):
            first = index * self._blocks_per_row
            places = self.memory.places_of(range(first, first + self._blocks_per_row))[:num_known]
            rows.append(
                ChunkRow(
                    window=np.arange(num_tokens + model.config.lookahead_tokens).tolist(),
                    num_tokens=num_tokens,
                    noise_start=0,
                    known=places,
                    context=places,
                    tails=tails,
                    speaker_bias=torch.randn(model.config.estimator.dim, device=model.device, generator=generator),
                )
            )
        return rows
