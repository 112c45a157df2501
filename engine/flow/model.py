"""The flow's weights and fixed tables, and all that is computed once per block rather than once per Euler step."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from voicegate.engine import units
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.flow.estimator import Estimator
from voicegate.engine.flow.euler import cosine_schedule, upstream_noise
from voicegate.engine.flow.weights import ESTIMATOR_PREFIX, load_flow_state
from voicegate.engine.model.config import FlowConfig

# A place in a token window that has no token: before the sequence, or past its end.
ABSENT = -1
# conv2 has three taps and looks left only, at conv1's last two outputs.
HISTORY_TOKENS: Final = 2


class FlowModel:
    """Immutable after construction, shared by every stream. Raises WeightsError if the state dict does not fit."""

    def __init__(
        self,
        config: FlowConfig,
        state_dict: Mapping[str, torch.Tensor],
        *,
        device: torch.device,
        dtype: torch.dtype,
        noise: torch.Tensor | None = None,
    ) -> None:
        state = load_flow_state(config, state_dict, device=device)
        estimator_state = {
            key.removeprefix(ESTIMATOR_PREFIX): tensor
            for key, tensor in state.items()
            if key.startswith(ESTIMATOR_PREFIX)
        }
        self.config = config
        self.device = device
        self.schedule = cosine_schedule(config.num_euler_steps)
        self.estimator = Estimator(config.estimator, estimator_state, self.schedule.times, dtype=dtype)
        if noise is not None and (noise.shape[0] != units.NUM_MELS or noise.shape[1] % FRAMES_PER_BLOCK):
            raise ValueError(f"noise is {list(noise.shape)}, not [80, a multiple of {FRAMES_PER_BLOCK}]")
        # By absolute frame, frame-major: [frames, 80]. The ODE's state stays float32 whatever the weights are.
        self.noise = (upstream_noise() if noise is None else noise).to(device, torch.float32).T.contiguous()
        self.rotations = self.estimator.rotations(self.max_frames)
        self._embedding = state["input_embedding.weight"]
        self._pre_lookahead = PreLookahead(state)
        self._speaker_affine = (state["spk_embed_affine_layer.weight"], state["spk_embed_affine_layer.bias"])

    @property
    def max_frames(self) -> int:
        """Frames of prompt and speech together that there is noise for."""
        return self.noise.shape[0]

    def checked_tokens(self, token_ids: Iterable[int]) -> tuple[int, ...]:
        """Negative ids become 0, as upstream has it. Raises ValueError for ids beyond the table."""
        tokens = tuple(token_ids)
        if tokens and min(tokens) < 0:
            tokens = tuple(max(token, 0) for token in tokens)
        if tokens and max(tokens) >= self.config.vocab_size:
            raise ValueError(f"speech token {max(tokens)} is not in the flow's table of {self.config.vocab_size}")
        return tokens

    def speaker_bias(self, embedding: torch.Tensor) -> torch.Tensor:
        """[192] -> [D]."""
        direction = F.normalize(embedding.to(self.device, torch.float32), dim=0)
        return self.estimator.speaker_bias(F.linear(direction, *self._speaker_affine))

    def input_base(self, cond: torch.Tensor, mu: torch.Tensor, speaker_bias: torch.Tensor) -> torch.Tensor:
        """The estimator's, [C, B, n, D]: without guidance of the conditioned half alone, which is half the work."""
        base = self.estimator.input_base(cond, mu, speaker_bias)
        return base if self.config.cfg_rate else base[:1]

    def mu(self, windows: Sequence[Sequence[int]]) -> torch.Tensor:
        """Token windows [2 before | m tokens | 3 ahead], ABSENT where there is none -> [B, 2m, 80]."""
        return self.mu_of(torch.tensor(windows, device=self.device))

    def mu_of(self, ids: torch.Tensor) -> torch.Tensor:
        """mu of windows that are on the device already: [B, 2 + m + 3] int64 -> [B, 2m, 80] float32."""
        exists = ids != ABSENT
        embedded = self._embedding[ids.clamp(min=0)] * exists[..., None]
        mixed = self._pre_lookahead(embedded, exists=exists[:, : -self.config.lookahead_tokens])
        return mixed.repeat_interleave(units.FRAMES_PER_TOKEN, dim=1)

    def token_window(self, tokens: Sequence[int], start: int, num_tokens: int) -> list[int]:
        """The window of mu around tokens start .. start + num_tokens - 1 of the sequence."""
        first = start - HISTORY_TOKENS
        past = start + num_tokens + self.config.lookahead_tokens
        known = tokens[max(first, 0) : past]
        head = max(-first, 0)
        return [ABSENT] * head + [*known] + [ABSENT] * (past - first - head - len(known))


class PreLookahead:
    """Upstream's PreLookaheadLayer over a window of [history | tokens | lookahead]: embeddings -> mu at token rate.

    Two small convolutions that see three tokens ahead. Stateless: a block's window repeats the two tokens before it,
    which costs less than carrying conv state around.
    """

    def __init__(self, state: Mapping[str, torch.Tensor]) -> None:
        self._conv1 = (state["pre_lookahead_layer.conv1.weight"], state["pre_lookahead_layer.conv1.bias"])
        self._conv2 = (state["pre_lookahead_layer.conv2.weight"], state["pre_lookahead_layer.conv2.bias"])

    def __call__(self, window: torch.Tensor, *, exists: torch.Tensor) -> torch.Tensor:
        """window [B, 2 + n + 3, 80], exists [B, 2 + n] -> [B, n, 80].

        `exists` is false for history before the sequence's first token: there upstream pads conv1's *output* with
        zeros, which is not what conv1 makes of zeros. Lookahead past the end is zeros in the window itself.
        """
        hidden = F.leaky_relu(_convolve(window, *self._conv1), negative_slope=0.01) * exists[..., None]
        mixed = _convolve(hidden, *self._conv2)
        return mixed + window[:, HISTORY_TOKENS : HISTORY_TOKENS + mixed.shape[1]]


def _convolve(frames: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """conv1d of [B, n, channels], as one product: on CUDA conv1d would be cuDNN's, which rounds to TF32 by default."""
    taps = frames.unfold(1, weight.shape[2], 1)  # [B, n - taps + 1, channels, taps]
    return F.linear(taps.flatten(2), weight.flatten(1), bias)
