"""The vocoder's weights and its excitation noise, which every way of running it shares."""

from collections.abc import Mapping

import torch
from torch.nn import functional

from voicegate.engine import units
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.vocoder.backend import VocoderStreamTooLong
from voicegate.engine.vocoder.excitation import project, upstream_excitation
from voicegate.engine.vocoder.weights import load_vocoder_weights


class VocoderModel:
    takes_any_cut = True

    def __init__(
        self,
        config: VocoderConfig,
        state_dict: Mapping[str, torch.Tensor],
        *,
        max_samples: int,
        device: torch.device,
        excitation: torch.Tensor | None = None,
    ) -> None:
        """`max_samples` of one stream. `excitation` [at least max_samples, 9] takes the place of upstream's table.

        Raises WeightsError.
        """
        self.config = config
        self.device = device
        self.weights = load_vocoder_weights(config, state_dict, device=device)
        self._max_frames = max_samples // units.SAMPLES_PER_FRAME
        merge_weight = self.weights["m_source.l_linear.weight"][0].cpu()
        if excitation is not None and len(excitation) < max_samples:
            raise ValueError(f"the excitation table has {len(excitation)} rows for {max_samples} samples")
        blocks = upstream_excitation(max_samples) if excitation is None else iter((excitation[:max_samples],))
        # A frame more: a final call looks one frame past the end, where only mirrored samples are used.
        self.noise = functional.pad(project(blocks, merge_weight), (0, units.SAMPLES_PER_FRAME)).to(device)

    @property
    def held_back_frames(self) -> int:
        return self.config.look_right_frames

    def check_length(self, num_frames: int) -> None:
        """For a stream of so many frames. Raises VocoderStreamTooLong."""
        if num_frames > self._max_frames:
            raise VocoderStreamTooLong(
                f"{num_frames} mel frames in one stream; the vocoder was built for {self._max_frames}"
            )

    def final_part(self, num_frames: int, *, is_first: bool, is_final: bool) -> slice:
        """Those of a call's samples [480 n + 4], by n frames, that belong to the signal and are final.

        One more spectrum touches `stft_hop` samples before the frames to advance by, so a call starts there and ends
        that far from its own end.
        """
        held = self.config.stft_hop
        return slice(held if is_first else 0, num_frames * units.SAMPLES_PER_FRAME + (held if is_final else 0))
