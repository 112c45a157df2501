"""Speaking speed: mel frames resampled along time, chunk by chunk, exactly as in one piece.

Upstream interpolates a whole utterance's mel linearly to int(T / speed) frames (half-pixel centres, as
torch.nn.functional.interpolate with align_corners=False). A stream does not know T, so the step between output
frames is `speed` itself rather than T / int(T / speed): equal wherever T / speed is whole.
"""

import math

import torch


class MelStretch:
    """Output frame j lies at input position (j + 0.5) * speed - 0.5, clamped to the ends."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._tail: torch.Tensor | None = None  # input frames from _tail_start on
        self._tail_start = 0
        self._num_out = 0

    def push(self, mel: torch.Tensor, *, is_final: bool) -> torch.Tensor:
        """mel [80, n] -> [80, m]: all output frames that are final once these n have arrived; n may be 0."""
        if self._speed == 1.0:
            return mel
        known = mel if self._tail is None else torch.cat((self._tail, mel), dim=1)
        num_in = self._tail_start + known.shape[1]
        num_out = math.floor(num_in / self._speed) if is_final else self._num_final(num_in)
        frames = torch.arange(self._num_out, num_out, dtype=torch.float64, device=mel.device)
        positions = ((frames + 0.5) * self._speed - 0.5).clamp(0, max(num_in - 1, 0))
        left = positions.floor().to(torch.int64)
        right = (left + 1).clamp(max=max(num_in - 1, 0))
        weight = (positions - left).to(mel.dtype)
        out = known[:, left - self._tail_start] * (1 - weight) + known[:, right - self._tail_start] * weight
        self._num_out = max(num_out, self._num_out)
        self._keep(known, num_in)
        return out

    def _num_final(self, num_in: int) -> int:
        """Outputs whose right neighbour is known: (j + 0.5) * speed - 0.5 <= num_in - 2."""
        return max(self._num_out, math.floor((num_in - 1.5) / self._speed - 0.5) + 1)

    def _keep(self, known: torch.Tensor, num_in: int) -> None:
        next_position = max((self._num_out + 0.5) * self._speed - 0.5, 0.0)
        first_needed = min(math.floor(next_position), max(num_in - 1, 0))
        first_needed = max(first_needed, self._tail_start)
        self._tail = known[:, first_needed - self._tail_start :]
        self._tail_start = first_needed
