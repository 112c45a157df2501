"""What a voice gives the flow: prompt tokens, their mel and the speaker; and the blocks it owns once prepared."""

from dataclasses import dataclass, field

import torch

from voicegate.engine import units
from voicegate.engine.token2wav.flow.block_pool import BlockPool
from voicegate.engine.token2wav.flow.errors import StreamTooLong
from voicegate.engine.token2wav.flow.model import FlowModel


@dataclass(frozen=True, slots=True, eq=False)
class FlowPrompt:
    speech_ids: torch.Tensor  # [P] int64; P may be 0
    mel: torch.Tensor  # [2P, 80] float32
    embedding: torch.Tensor  # [192] float32, before normalisation


@dataclass(slots=True, eq=False)
class PreparedPrompt:
    """A prompt on the device. Holds one reference to each of its complete blocks until `release`."""

    tokens: tuple[int, ...]
    mel: torch.Tensor  # [2P, 80]
    speaker_bias: torch.Tensor  # [D], see Estimator.speaker_bias
    pool: BlockPool = field(repr=False)
    blocks: tuple[int, ...] = ()  # set by FlowRunner.prepare
    is_released: bool = False

    @property
    def num_frames(self) -> int:
        return len(self.tokens) * units.FRAMES_PER_TOKEN

    def release(self) -> None:
        """No stream can be opened any more; those that are open keep the blocks until they close. Idempotent."""
        if not self.is_released:
            self.is_released = True
            self.pool.release(self.blocks)


def load_prompt(model: FlowModel, pool: BlockPool, prompt: FlowPrompt) -> PreparedPrompt:
    """Check and copy to the device; no blocks yet. Raises ValueError or StreamTooLong."""
    num_tokens = len(prompt.speech_ids)
    num_frames = num_tokens * units.FRAMES_PER_TOKEN
    if prompt.mel.shape != (num_frames, units.NUM_MELS):
        raise ValueError(f"a prompt of {num_tokens} tokens needs mel [{num_frames}, 80], not {list(prompt.mel.shape)}")
    if prompt.embedding.shape != (model.config.speaker_dim,):
        raise ValueError(f"embedding is {list(prompt.embedding.shape)}, not [{model.config.speaker_dim}]")
    if num_frames > model.max_frames:
        raise StreamTooLong(f"the prompt has {num_frames} frames, the flow's noise {model.max_frames}")
    return PreparedPrompt(
        tokens=model.checked_tokens(prompt.speech_ids.tolist()),
        mel=prompt.mel.to(model.device, torch.float32),
        speaker_bias=model.speaker_bias(prompt.embedding),
        pool=pool,
    )
