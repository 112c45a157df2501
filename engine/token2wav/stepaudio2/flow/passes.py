"""What is computed of a batch of chunks: once when it begins, and once an Euler step. Only tensors, only enqueued."""

import torch

from voicegate.engine.token2wav.flow.euler import guide
from voicegate.engine.token2wav.stepaudio2.flow.chunk_buffers import ChunkBuffers
from voicegate.engine.token2wav.stepaudio2.flow.context import MemoryEncoderContext, MemoryFrameContext
from voicegate.engine.token2wav.stepaudio2.flow.memory import FlowMemory
from voicegate.engine.token2wav.stepaudio2.flow.model import StepAudio2Flow
from voicegate.engine.token2wav.stepaudio2.flow.modulation import modulation_of


class ChunkPasses:
    """Between `begin` and the last `advance` the buffers are written to by these alone."""

    def __init__(self, model: StepAudio2Flow, memory: FlowMemory) -> None:
        self._model = model
        self._memory = memory

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
        """One Euler step for all rows."""
        model, step = self._model, buffers.step
        context = MemoryFrameContext(self._memory, buffers)
        modulation = modulation_of(model.estimator.modulation_table.index_select(0, step)[0])
        velocity = model.estimator.velocity(buffers.x, buffers.base, modulation, context)
        guided = guide(velocity.to(buffers.x.dtype), cfg_rate=model.config.cfg_rate)
        buffers.x.add_(model.widths.index_select(0, step) * guided)
        context.finish()
        step.add_(1)
