"""A vocoder of full size with random weights: what its kernel benchmarks run."""

import math
from typing import Final

import torch

from voicegate.bench.kernels.floors import FULL
from voicegate.bench.kernels.timing import DEVICE
from voicegate.engine import units
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.vocoder.cuda.config import VocoderCudaConfig
from voicegate.engine.vocoder.cuda.renderer import CudaRenderer
from voicegate.engine.vocoder.model import VocoderModel
from voicegate.engine.vocoder.runner import Renderer, VocoderRunner
from voicegate.engine.vocoder.weights import F0_PREFIX, vocoder_shapes

FULL_SIZE: Final = FULL.vocoder
BATCHES: Final = (1, 2, 4, 8, 16, 32)
MAX_FRAMES: Final = 400


def random_state_dict(config: VocoderConfig) -> dict[str, torch.Tensor]:
    """The golden README's rule with another generator: pitch of 0 to 400 Hz, audio inside its limits."""
    generator = torch.Generator().manual_seed(0)
    state: dict[str, torch.Tensor] = {}
    for name, shape in vocoder_shapes(config).items():
        normal = torch.randn(shape, generator=generator)
        if name.endswith("original0"):
            state[name] = 1 + 0.1 * normal.abs()
        elif len(shape) >= 2:
            state[name] = normal / math.sqrt(math.prod(shape[1:]))
        else:
            state[name] = 0.1 * normal + (1 if name.endswith((".weight", ".alpha")) else 0)
    state[f"{F0_PREFIX}classifier.weight"] *= 150
    state["conv_post.parametrizations.weight.original0"] *= 0.1
    state["conv_post.bias"] -= 1.5
    return state


class VocoderFixture:
    def __init__(self) -> None:
        self._state = random_state_dict(FULL_SIZE)
        generator = torch.Generator().manual_seed(1)
        self._excitation = torch.rand(MAX_FRAMES * units.SAMPLES_PER_FRAME, 9, generator=generator)
        self.mel = torch.randn(max(BATCHES), units.NUM_MELS, MAX_FRAMES, generator=generator).to(DEVICE)
        self.model = self.load(DEVICE)

    def load(self, device: torch.device) -> VocoderModel:
        num_samples = len(self._excitation)
        return VocoderModel(FULL_SIZE, self._state, max_samples=num_samples, device=device, excitation=self._excitation)

    def renderer(self, cuda: VocoderCudaConfig) -> CudaRenderer:
        return CudaRenderer(self.model, cuda, max_streams=max(BATCHES))

    def runner(self, renderer: Renderer) -> VocoderRunner:
        return VocoderRunner(self.model, renderer, max_streams=max(BATCHES))
