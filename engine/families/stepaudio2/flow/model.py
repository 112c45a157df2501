"""Step-Audio2's flow: weights and fixed tables, and what is computed once a chunk rather than once an Euler step."""

from collections.abc import Iterable, Mapping
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from voicegate.engine import units
from voicegate.engine.families.stepaudio2.config import StepAudio2FlowConfig
from voicegate.engine.families.stepaudio2.flow.encoder import MAX_FRAMES, Conformer, EncoderContext
from voicegate.engine.families.stepaudio2.flow.estimator import Estimator
from voicegate.engine.families.stepaudio2.flow.weights import (
    ENCODER_PREFIX,
    ESTIMATOR_PREFIX,
    below,
    load_flow_state,
)
from voicegate.engine.flow.euler import cosine_schedule

# A place in a token window that has no token: past the end of a stream, or of a row.
ABSENT: Final = -1


class StepAudio2Flow:
    """Immutable after construction, shared by every stream. Raises WeightsError if the state dict does not fit."""

    def __init__(
        self,
        config: StepAudio2FlowConfig,
        state_dict: Mapping[str, torch.Tensor],
        *,
        device: torch.device,
        dtype: torch.dtype,
        noise: torch.Tensor | None = None,
    ) -> None:
        """`noise` [80, n], by default drawn here: upstream draws its own at every start, there is none to equal."""
        state = load_flow_state(config, state_dict, device=device)
        self.config = config
        self.device = device
        self.dtype = dtype
        self.schedule = cosine_schedule(config.num_euler_steps)
        self.encoder = Conformer(config.encoder, below(state, ENCODER_PREFIX), dtype=dtype)
        self.estimator = Estimator(config.estimator, below(state, ESTIMATOR_PREFIX), self.schedule.times, dtype=dtype)
        self.widths = torch.tensor(self.schedule.widths, device=device)  # of the Euler steps
        if noise is not None and noise.shape[0] != units.NUM_MELS:
            raise ValueError(f"noise is {list(noise.shape)}, not [{units.NUM_MELS}, frames]")
        # Frame-major: [frames, 80]. The ODE's state stays float32 whatever the weights are.
        drawn = _drawn_noise() if noise is None else noise[:, :MAX_FRAMES]
        self.noise = drawn.to(device, torch.float32).T.contiguous()
        self._embedding = state["input_embedding.weight"]
        self._mu = (state["encoder_proj.weight"].to(dtype), state["encoder_proj.bias"].to(dtype))
        self._speaker_affine = (state["spk_embed_affine_layer.weight"], state["spk_embed_affine_layer.bias"])

    @property
    def max_frames(self) -> int:
        """Frames of prompt and speech together that there are noise and positions for."""
        return len(self.noise)

    def checked_tokens(self, token_ids: Iterable[int]) -> list[int]:
        """Raises ValueError for ids that the table does not have."""
        tokens = list(token_ids)
        if tokens and not 0 <= min(tokens) <= max(tokens) < self.config.vocab_size:
            raise ValueError(
                f"speech tokens {min(tokens)} to {max(tokens)} are not in the flow's table of {self.config.vocab_size}"
            )
        return tokens

    def speaker_bias(self, embedding: torch.Tensor) -> torch.Tensor:
        """[192] -> [D]."""
        direction = F.normalize(embedding.to(self.device, torch.float32), dim=0)
        return self.estimator.speaker_bias(F.linear(direction, *self._speaker_affine))

    def mu(self, ids: torch.Tensor, context: EncoderContext) -> torch.Tensor:
        """Token windows [B, m + lookahead] int64, ABSENT where there is none -> [B, 2m, 80] float32."""
        encoded = self.encoder(self._embedding[ids.clamp(min=0)], ids != ABSENT, context)
        return F.linear(encoded, *self._mu).float()


def _drawn_noise() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn([units.NUM_MELS, MAX_FRAMES], generator=generator)
