"""The vocoder's weights and its noise, which every way of running it shares."""

from collections.abc import Mapping
from typing import Final

import torch

from voicegate.engine import units
from voicegate.engine.families.stepaudio2.vocoder.network import StepAudio2Network
from voicegate.engine.families.stepaudio2.vocoder.weights import load_vocoder_weights
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.vocoder.backend import VocoderStreamTooLong

# Frames of each call that are rendered again in the next, and faded.
OVERLAP_FRAMES: Final = 8

_ROWS_PER_DRAW: Final = 65_536


class StepAudio2Vocoder:
    takes_any_cut = False  # frames are repeated at each call, and two renderings of them faded: renderer.py

    def __init__(
        self,
        config: VocoderConfig,
        state_dict: Mapping[str, torch.Tensor],
        *,
        max_samples: int,
        device: torch.device,
        noise: torch.Tensor | None = None,
    ) -> None:
        """`max_samples` of one stream. `noise` [at least max_samples, 9]: of the source's harmonics, else drawn here.

        Upstream draws it anew in every call; here a stream's samples have theirs by their place in it, so that equal
        speech tokens make equal sound. Raises WeightsError.
        """
        self.config = config
        self.device = device
        self.weights = weights = load_vocoder_weights(config, state_dict, device=device)
        self.network = StepAudio2Network(config, weights, device=device)
        self._max_frames = max_samples // units.SAMPLES_PER_FRAME
        if noise is not None and len(noise) < max_samples:
            raise ValueError(f"the noise has {len(noise)} rows for {max_samples} samples")
        merge_weight = weights["m_source.l_linear.weight"][0].cpu()
        drawn = _drawn(max_samples, merge_weight) if noise is None else noise[:max_samples] @ merge_weight
        self.noise = drawn.to(device)  # merged over harmonics: one number a sample

    @property
    def held_back_frames(self) -> int:
        return OVERLAP_FRAMES

    def check_length(self, num_frames: int) -> None:
        """Checks a stream's length. Raises VocoderStreamTooLong."""
        if num_frames > self._max_frames:
            raise VocoderStreamTooLong(
                f"{num_frames} mel frames in one stream; the vocoder was built for {self._max_frames}"
            )


def _drawn(num_rows: int, merge_weight: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    drawn = [
        torch.randn(min(_ROWS_PER_DRAW, num_rows - start), len(merge_weight), generator=generator) @ merge_weight
        for start in range(0, num_rows, _ROWS_PER_DRAW)
    ]
    return torch.cat(drawn) if drawn else merge_weight.new_zeros(0)
