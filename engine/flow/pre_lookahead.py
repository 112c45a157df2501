"""Speech-token embeddings -> mu at token rate: two small convolutions that see three tokens ahead.

Stateless: a block's window repeats the two tokens before it, which costs less than carrying conv state around.
"""

from collections.abc import Mapping
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

# conv2 has three taps and looks left only, at conv1's last two outputs.
HISTORY_TOKENS: Final = 2


class PreLookahead:
    """Upstream's PreLookaheadLayer over a window of [history | tokens | lookahead]."""

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
