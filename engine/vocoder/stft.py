"""The 16-point spectra at the filter's two ends, as matrix products: 4 new samples a frame, 18 numbers a spectrum.

Frame j covers samples 4j - 8 .. 4j + 7 (centred), so each sample lies in four frames and each frame ends a block of 4.
"""

import torch
from torch.nn import functional

from voicegate.engine.model.config import VocoderConfig


def hann_window(size: int) -> torch.Tensor:
    """Periodic, formed in float64 and rounded to float32 as scipy's is; torch.hann_window differs in the last bit."""
    angle = torch.arange(size, dtype=torch.float64) * (2 * torch.pi / size)
    return (0.5 - 0.5 * torch.cos(angle)).to(torch.float32)


class Analysis:
    """Windowed samples -> [real of 9 bins, imaginary of 9 bins]."""

    def __init__(self, config: VocoderConfig, *, device: torch.device) -> None:
        self._size, self._hop = config.stft_size, config.stft_hop
        angle = _angles(self._size)
        basis = torch.cat((torch.cos(angle), -torch.sin(angle)))  # [18, 16]
        self._basis = (basis * hann_window(self._size)).T.to(device, torch.float32).contiguous()

    def spectra(self, samples: torch.Tensor) -> torch.Tensor:
        """samples [B, 4n + 12] -> [B, n, 18]."""
        return samples.unfold(1, self._size, self._hop) @ self._basis

    def padded_basis(self, num_channels: int) -> torch.Tensor:
        """[16, num_channels]: `spectra`'s factor, zeros for the channels that are not there."""
        return functional.pad(self._basis, (0, num_channels - self._basis.shape[1])).contiguous()


class Synthesis:
    """Log-magnitudes and phases of frames -> overlapped samples, with the frames before as state."""

    def __init__(self, config: VocoderConfig, *, device: torch.device) -> None:
        self._size, self._hop = config.stft_size, config.stft_hop
        self.num_tail_frames = self._size // self._hop - 2  # of those that a new block needs, less the recomputed one
        self._num_bins = self._size // 2 + 1
        window = hann_window(self._size).to(torch.float64)
        energy = window.square().view(-1, self._hop)  # [4 frames back, 4 samples]
        envelope = energy.sum(0)
        angle = _angles(self._size)
        # A real signal's inverse transform: the inner bins count twice, for their mirror images.
        twice = torch.full((self._num_bins, 1), 2 / self._size, dtype=torch.float64)
        twice[0] = twice[-1] = 1 / self._size
        basis = torch.cat((twice * torch.cos(angle), -twice * torch.sin(angle)))  # [18, 16]
        basis = basis * window / envelope.repeat(self._size // self._hop)
        self._basis = basis.T.to(device, torch.float32).contiguous()  # [16, 18]
        # At an utterance's two ends one of the four frames does not exist, in the signal or in the envelope.
        self._first_gain = (envelope / (envelope - energy[-1])).to(device, torch.float32)
        self._last_gain = (envelope / (envelope - energy[0])).to(device, torch.float32)

    def frames(self, spectra: torch.Tensor) -> torch.Tensor:
        """[B, n, 18] as the network makes them -> windowed samples of each frame [B, 16, n]."""
        log_magnitude, phase_input = torch.split(spectra.transpose(1, 2).contiguous(), self._num_bins, dim=1)
        magnitude = log_magnitude.exp().clamp_(max=100)
        phase = torch.sin(phase_input)  # bounded to a radian either way: upstream's parametrisation
        return self._basis @ torch.cat((magnitude * phase.cos(), magnitude * phase.sin()), dim=1)

    def overlap(self, frames: torch.Tensor) -> torch.Tensor:
        """Frames [B, 16, n + 3] -> blocks [B, n, 4]: block q is frames q .. q + 3, a quarter of each."""
        num_blocks = frames.shape[2] - 3
        quarters = frames.view(len(frames), -1, self._hop, frames.shape[2])  # [B, 4, 4, n + 3]
        blocks = quarters[:, 3, :, :num_blocks].clone()
        for back in range(3):
            start = 3 - back
            blocks += quarters[:, back, :, start : start + num_blocks]
        return blocks.transpose(1, 2)

    def block_bases(self) -> torch.Tensor:
        """[4, 2, 16, 16], padded: what frame q + i's real and imaginary bins add to the samples of block q."""
        num_frames = self._size // self._hop
        parts = self._basis.view(num_frames, self._hop, 2, self._num_bins).flip(0)  # frame q gives its last quarter
        room = (0, self._size - self._hop, 0, self._size - self._num_bins)
        return functional.pad(parts.permute(0, 2, 3, 1), room).contiguous()

    def end_gains(self) -> torch.Tensor:
        """[2, 16], padded: what the samples of the first and of the last block are multiplied by."""
        gains = torch.stack((self._first_gain, self._last_gain))
        return functional.pad(gains, (0, self._size - self._hop)).contiguous()

    def scale_ends(self, blocks: torch.Tensor, is_first: torch.Tensor, last_block: torch.Tensor) -> torch.Tensor:
        """Blocks [B, n, 4]; block 1 of a first row and `last_block` [B, 1] of every row lack a frame."""
        gain = torch.where(is_first[:, None], self._first_gain, torch.ones_like(self._first_gain))
        blocks[:, 1] *= gain
        index = last_block[:, :, None].expand(-1, -1, self._hop)
        return blocks.scatter(1, index, blocks.gather(1, index) * self._last_gain)


def _angles(size: int) -> torch.Tensor:
    """[bins, size] float64."""
    bins = torch.arange(size // 2 + 1, dtype=torch.float64)
    return bins[:, None] * torch.arange(size, dtype=torch.float64) * (2 * torch.pi / size)
