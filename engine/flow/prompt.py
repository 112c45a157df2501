"""A voice's prompt on the device, checked, and the blocks that it owns once they are rendered."""

from dataclasses import dataclass

import torch

from voicegate.engine import units
from voicegate.engine.flow import chunking
from voicegate.engine.flow.backend import FlowPrompt, StreamTooLong
from voicegate.engine.flow.model import FlowModel


@dataclass(slots=True, eq=False)
class BlockPrompt:
    """Implements PreparedPrompt. Holds one reference to each of its complete blocks until it is released."""

    tokens: tuple[int, ...]
    mel: torch.Tensor  # [2P, 80]
    speaker_bias: torch.Tensor  # [D], see Estimator.speaker_bias
    blocks: tuple[int, ...] = ()  # set by its rendering
    short: "BlockPrompt | None" = None  # laid out for streams that begin short; released with this one
    is_released: bool = False

    @property
    def num_frames(self) -> int:
        return len(self.tokens) * units.FRAMES_PER_TOKEN

    @property
    def num_blocks(self) -> int:
        return sum(len(layout.blocks) for layout in self.layouts)

    @property
    def layouts(self) -> "list[BlockPrompt]":
        return [self] if self.short is None else [self, self.short]

    @property
    def first_block_tokens(self) -> int:
        return chunking.first_block_tokens(len(self.tokens))

    @property
    def second_block_tokens(self) -> int:
        return chunking.TOKENS_PER_BLOCK


def load_prompt(model: FlowModel, prompt: FlowPrompt, *, num_lead_in_tokens: int = 0) -> BlockPrompt:
    """Check and copy to the device; no blocks yet. Raises ValueError or StreamTooLong.

    The lead-in is so many tokens of the prompt's own end in front of it, with their mel: a recording played in a loop.
    """
    prompt.check_shapes(speaker_dim=model.config.speaker_dim)
    order = torch.arange(-num_lead_in_tokens, len(prompt.speech_ids)) % max(len(prompt.speech_ids), 1)
    tokens = model.checked_tokens(prompt.speech_ids[order].tolist())
    num_frames = len(tokens) * units.FRAMES_PER_TOKEN
    if num_frames > model.max_frames:
        raise StreamTooLong(f"the prompt has {num_frames} frames, the flow's noise {model.max_frames}")
    frames = (order[:, None] * units.FRAMES_PER_TOKEN + torch.arange(units.FRAMES_PER_TOKEN)).flatten()
    return BlockPrompt(
        tokens=tokens,
        mel=prompt.mel[frames].to(model.device, torch.float32),
        speaker_bias=model.speaker_bias(prompt.embedding),
    )
