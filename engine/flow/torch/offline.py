"""The flow over a whole sequence at once, as upstream runs it: what the incremental path must equal.

Nothing is cached or shared between calls, so a stream rendered so costs the square of its length.
"""

from collections.abc import Iterable

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from voicegate.engine import units
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.flow.estimator import CONV_HISTORY
from voicegate.engine.flow.euler import euler_step
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.prompt import BlockPrompt


class WholeSequence:
    """Implements FrameContext: nothing lies before, and every frame is here."""

    def __init__(self, num_frames: int, *, streaming: bool, device: torch.device) -> None:
        block = torch.arange(num_frames, device=device) // FRAMES_PER_BLOCK
        # Streaming: all blocks before, and the own one in both directions. Else: everything.
        self._mask = block[None, :] <= block[:, None] if streaming else None

    def with_history(self, hidden: torch.Tensor, *, step: int, conv: int) -> torch.Tensor:
        return F.pad(hidden, (0, 0, CONV_HISTORY, 0))

    def attend(self, qkv: torch.Tensor, *, step: int, layer: int) -> torch.Tensor:
        queries, keys, values = qkv[:, 0].permute(2, 0, 3, 1, 4)  # [C, H, n, d] each; B is 1
        attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=self._mask, scale=1.0)
        return attended.transpose(1, 2).flatten(2).unsqueeze(1)


@torch.inference_mode()
def render_offline(
    model: FlowModel, prompt: BlockPrompt, token_ids: Iterable[int], *, streaming: bool, is_final: bool
) -> torch.Tensor:
    """[80, 2N]; not final: without the last three tokens, which are then lookahead only."""
    tokens = prompt.tokens + model.checked_tokens(token_ids)
    num_tokens = len(tokens) - (0 if is_final else model.config.lookahead_tokens)
    num_frames = num_tokens * units.FRAMES_PER_TOKEN
    mu = model.mu([model.token_window(tokens, 0, num_tokens)])
    cond = F.pad(prompt.mel[None, :num_frames], (0, 0, 0, max(num_frames - prompt.num_frames, 0)))
    base = model.input_base(cond, mu, prompt.speaker_bias[None])
    context = WholeSequence(num_frames, streaming=streaming, device=model.device)
    x = model.noise[None, :num_frames]
    for step, width in enumerate(model.schedule.widths):
        velocity = model.estimator.velocity(x, base, model.rotations[None, :num_frames], step=step, context=context)
        x = euler_step(x, velocity, width=width, cfg_rate=model.config.cfg_rate)
    return x[0, prompt.num_frames :].T
