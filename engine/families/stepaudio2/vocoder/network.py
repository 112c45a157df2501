"""Mel frames and the source that excites them -> samples: Step-Audio2's HiFT, whose layers look both ways.

Rows are right-padded. Every layer sees zeros behind a row's last column, as it does behind a whole input's, so a row
becomes what it would alone. Channels first: [B, channels, columns].
"""

from collections.abc import Mapping
from typing import Final

import torch
from torch.nn import functional

from voicegate.engine import units
from voicegate.engine.families.stepaudio2.vocoder.resblocks import convolve, filter_of, resblock
from voicegate.engine.families.stepaudio2.vocoder.source import F0Predictor, HarmonicSource
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.vocoder.stft import Analysis, Synthesis
from voicegate.engine.vocoder.weights import source_stride, stage_rate

POST_SLOPE: Final = 0.01  # upstream uses torch's default here, not its own


class RowLengths:
    """Which columns of padded rows are theirs, at every rate."""

    def __init__(self, frames: torch.Tensor, max_frames: int) -> None:
        self.frames = frames  # [B]
        self.max_frames = max_frames

    def mask(self, rate: int, *, extra: int = 0) -> torch.Tensor:
        """[B, 1, N]: whether column n is one of the row's frames * rate + extra."""
        columns = torch.arange(self.max_frames * rate + extra, device=self.frames.device)
        return (columns < self.frames[:, None] * rate + extra)[:, None]


class StepAudio2Network:
    def __init__(self, config: VocoderConfig, weights: Mapping[str, torch.Tensor], *, device: torch.device) -> None:
        self._config = config
        self._weights = weights
        self._f0 = F0Predictor(weights)
        self._source = HarmonicSource(config, weights)
        self._analysis = Analysis(config, device=device)
        self._synthesis = Synthesis(config, device=device)
        self._spectra_per_frame = units.SAMPLES_PER_FRAME // config.stft_hop

    def f0(self, mel: torch.Tensor, lengths: RowLengths) -> torch.Tensor:
        """mel [B, 80, T] -> Hz [B, T]."""
        return self._f0(mel, lengths.mask(1)[:, 0])

    def source(self, f0: torch.Tensor, lengths: RowLengths, noise: torch.Tensor) -> torch.Tensor:
        """f0 [B, T], noise [B, 480 T] -> [B, 480 T]."""
        return self._source(f0, lengths.frames, noise)

    def spectra(self, source: torch.Tensor, lengths: RowLengths) -> torch.Tensor:
        """[B, 480 T] -> [B, 18, 120 T + 1], each row mirrored at its own end."""
        half = self._config.stft_size // 2
        padded = functional.pad(source, (half, half))
        padded[:, :half] = source[:, 1 : half + 1].flip(1)
        behind = lengths.frames[:, None] * units.SAMPLES_PER_FRAME + torch.arange(half, device=source.device)  # [B, 8]
        mirrored = source.gather(1, 2 * lengths.frames[:, None] * units.SAMPLES_PER_FRAME - 2 - behind)
        padded.scatter_(1, half + behind, mirrored)
        return self._analysis.spectra(padded).mT * lengths.mask(self._spectra_per_frame, extra=1)

    def decode(self, mel: torch.Tensor, spectra: torch.Tensor, lengths: RowLengths) -> torch.Tensor:
        """mel [B, 80, T], spectra [B, 18, 120 T + 1] -> samples [B, 480 T]."""
        mask = lengths.mask(1)
        x = self._conv("conv_pre", mel * mask, mask)
        num_stages = len(self._config.upsample_rates)
        for stage in range(num_stages):
            is_last = stage == num_stages - 1
            mask = lengths.mask(stage_rate(self._config, stage), extra=int(is_last))
            x = self._upsample(stage, x)
            if is_last:
                x = functional.pad(x, (1, 0), mode="reflect")
            x = (x + self._source_branch(stage, spectra, mask)) * mask
            x = self._filter(stage, x, mask)
        x = self._conv("conv_post", functional.leaky_relu(x, POST_SLOPE), mask)
        return self._synthesise(x.mT, lengths)

    def _upsample(self, stage: int, x: torch.Tensor) -> torch.Tensor:
        rate, kernel = self._config.upsample_rates[stage], self._config.upsample_kernels[stage]
        return functional.conv_transpose1d(
            functional.leaky_relu(x, self._config.leaky_relu_slope),
            self._weights[f"ups.{stage}.weight"],
            self._weights[f"ups.{stage}.bias"],
            stride=rate,
            padding=(kernel - rate) // 2,
        )

    def _source_branch(self, stage: int, spectra: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        stride = source_stride(self._config, stage)
        down = functional.conv1d(
            spectra,
            self._weights[f"source_downs.{stage}.weight"],
            self._weights[f"source_downs.{stage}.bias"],
            stride=stride,
            padding=stride // 2,
        )
        dilations = self._config.source_resblock_dilations[stage]
        return resblock(self._weights, f"source_resblocks.{stage}", down * mask, dilations, mask)

    def _filter(self, stage: int, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        dilations = self._config.resblock_dilations
        first = stage * len(dilations)
        blocks = [
            resblock(self._weights, f"resblocks.{first + index}", x, each, mask) for index, each in enumerate(dilations)
        ]
        total = blocks[0]
        for block in blocks[1:]:
            total += block
        return total.div_(len(blocks))

    def _conv(self, name: str, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return convolve(x, *filter_of(self._weights, name)) * mask

    def _synthesise(self, spectra: torch.Tensor, lengths: RowLengths) -> torch.Tensor:
        """[B, 120 T + 1, 18] -> [B, 480 T]. Block b of 4 samples lies in frames b - 1 .. b + 2, if they exist."""
        frames = self._synthesis.frames(spectra) * lengths.mask(self._spectra_per_frame, extra=1)
        blocks = self._synthesis.overlap(functional.pad(frames, (1, 1)))  # [B, 120 T, 4]
        first_gain, last_gain = self._synthesis.end_gains()[:, : self._config.stft_hop]
        blocks[:, 0] *= first_gain
        last = (lengths.frames * self._spectra_per_frame - 1)[:, None, None].expand(-1, -1, blocks.shape[2])
        blocks = blocks.scatter(1, last, blocks.gather(1, last) * last_gain)
        limit = self._config.audio_limit
        return blocks.flatten(1).clamp_(-limit, limit)
