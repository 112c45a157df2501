"""Passes over a batch of chunks: once when it begins, and once an Euler step. Only tensors, only enqueued."""

from typing import Protocol

import torch

from voicegate.engine.families.stepaudio2.flow.chunk_buffers import ChunkBuffers
from voicegate.engine.families.stepaudio2.flow.context import MemoryEncoderContext, MemoryFrameContext
from voicegate.engine.families.stepaudio2.flow.memory import FlowMemory
from voicegate.engine.families.stepaudio2.flow.model import StepAudio2Flow
from voicegate.engine.families.stepaudio2.flow.modulation import modulation_of
from voicegate.engine.flow.euler import guide


class EulerStep(Protocol):
    """One Euler step for all rows: TorchStep by torch's operations, cuda.step.FusedStep by kernels of our own."""

    def advance(self, buffers: ChunkBuffers) -> None:
        """x, the new frames' keys and values, the convolutions' tails and the step's number move on."""


class ChunkPasses:
    """Between `begin` and the last `advance` the buffers are written to by these alone."""

    def __init__(self, model: StepAudio2Flow, memory: FlowMemory, step: EulerStep | None = None) -> None:
        self._model = model
        self._memory = memory
        self._step = step or TorchStep(model, memory)

    @torch.inference_mode()
    def begin(self, buffers: ChunkBuffers) -> None:
        model = self._model
        mu = model.mu(buffers.window, MemoryEncoderContext(self._memory, buffers))
        conditioned = model.estimator.conditioned_base(mu, buffers.speaker_bias, buffers.cond)
        buffers.base.copy_(model.estimator.guided_base(conditioned))
        frames = buffers.noise_starts[:, None] + torch.arange(buffers.x.shape[1], device=buffers.x.device)
        # Padding may run past the noise's end; what it finds there is garbage anyway.
        buffers.x.copy_(model.noise[frames.clamp(max=len(model.noise) - 1)])

    @torch.inference_mode()
    def advance(self, buffers: ChunkBuffers) -> None:
        self._step.advance(buffers)


class TorchStep:
    """Implements EulerStep: some 720 launches on a GPU, for any device and any shape."""

    def __init__(self, model: StepAudio2Flow, memory: FlowMemory) -> None:
        self._model = model
        self._memory = memory

    def advance(self, buffers: ChunkBuffers) -> None:
        estimator, step = self._model.estimator, buffers.step
        context = MemoryFrameContext(self._memory, buffers)
        modulation = modulation_of(estimator.modulation_table.index_select(0, step)[0].to(estimator.dtype))
        velocity = estimator.velocity(buffers.x, buffers.base, modulation, context)
        guided = guide(velocity.to(buffers.x.dtype), cfg_rate=self._model.config.cfg_rate)
        buffers.x.add_(self._model.widths.index_select(0, step) * guided)
        context.finish()
        step.add_(1)
