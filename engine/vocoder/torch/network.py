"""One call of the stateful vocoder: n new mel frames of each stream of a batch -> their samples. Owns no stream.

Shapes depend on the padded batch alone and nothing waits for the device, so that a call can become a CUDA graph.
"""

import torch
from torch.nn import functional

from voicegate.engine import units
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.vocoder.stft import Analysis, Synthesis
from voicegate.engine.vocoder.torch.f0 import F0Predictor
from voicegate.engine.vocoder.torch.layers import Convolution, ResBlock, Upsample, Weights
from voicegate.engine.vocoder.torch.source import HarmonicSource
from voicegate.engine.vocoder.torch.state import BatchRows, Layout, Tails, behind_tail, merged_layouts
from voicegate.engine.vocoder.weights import POST_KERNEL, source_stride, stage_channels, stage_rate

# Upstream calls leaky_relu before conv_post without a slope: torch's default, not the configuration's.
POST_SLOPE = 0.01

_CYCLES = "cycles"  # float64, with the f0 tails
_SOURCE = "source"
_SPECTRA = "spectra"
_EDGE = "edge"
_POST = "conv_post"
_FRAMES = "frames"


class Stage:
    """Upsample, add the source's branch, average the resblocks."""

    def __init__(self, config: VocoderConfig, stage: int, weights: Weights, *, dtype: torch.dtype) -> None:
        self.rate = stage_rate(config, stage)
        self.rate_before = self.rate // config.upsample_rates[stage]
        self.source_stride = source_stride(config, stage)
        self.upsample = Upsample(f"ups.{stage}", weights, config.upsample_rates[stage], dtype=dtype)
        self._source_down = Convolution(
            weights[f"source_downs.{stage}.weight"],
            weights[f"source_downs.{stage}.bias"],
            stride=self.source_stride,
            dtype=dtype,
        )
        self._source_block = ResBlock(
            f"source_resblocks.{stage}", weights, config.source_resblock_dilations[stage], dtype=dtype
        )
        first = stage * len(config.resblock_kernels)
        self._blocks = [
            ResBlock(f"resblocks.{first + index}", weights, dilations, dtype=dtype)
            for index, dilations in enumerate(config.resblock_dilations)
        ]

    @property
    def layout(self) -> Layout:
        blocks = (self._source_block, *self._blocks)
        return merged_layouts((self.upsample.layout, *(block.layout for block in blocks)))

    def source(self, spectra: torch.Tensor, tails: Tails, rows: BatchRows) -> torch.Tensor:
        """spectra [B, stride - 1 + N, 18] -> [B, N / stride, channels]."""
        return self._source_block.advance(self._source_down(spectra), tails, rows, self.rate)

    def filter(self, x: torch.Tensor, tails: Tails, rows: BatchRows) -> torch.Tensor:
        total = self._blocks[0].advance(x, tails, rows, self.rate)
        for block in self._blocks[1:]:
            total += block.advance(x, tails, rows, self.rate)
        return total.div_(len(self._blocks))


class VocoderNetwork:
    """n mel frames have 120 n + 1 spectra, which are centred on every 4th sample from 0 on: one column more than n.

    The column that two calls share, and the pitch of the frame that it looks into, are computed again as the later
    call's first, from tails that end before it. For that 120th of the work a stream's first call, its last and all
    between are one computation, but for what `_mirror_ends`, `_join_edge` and `Synthesis.scale_ends` do to the
    edges of a signal. No sample comes out twice.
    """

    def __init__(self, config: VocoderConfig, weights: Weights, *, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype = dtype
        self._slope = config.leaky_relu_slope
        self._audio_limit = config.audio_limit
        self._half_window = config.stft_size // 2
        self._spectra_per_frame = units.SAMPLES_PER_FRAME // config.stft_hop
        self._num_bins = config.stft_size + 2
        self._f0 = F0Predictor(weights)
        self.harmonic_source = HarmonicSource(config, weights)
        self._analysis = Analysis(config, device=device)
        self._synthesis = Synthesis(config, device=device)
        self._pre = Convolution(weights["conv_pre.weight"], weights["conv_pre.bias"], dtype=dtype)
        num_stages = len(config.upsample_rates)
        self._stages = [Stage(config, stage, weights, dtype=dtype) for stage in range(num_stages)]
        self._last_channels = stage_channels(config, num_stages - 1)
        self._post = Convolution(weights["conv_post.weight"], weights["conv_post.bias"], dtype=dtype)

    @property
    def exact_layout(self) -> Layout:
        """State in float64."""
        return {**self._f0.layout, _CYCLES: (self.harmonic_source.num_harmonics,)}

    @property
    def layout(self) -> Layout:
        """State in float32."""
        own: Layout = {
            _SOURCE: (self._half_window,),
            _SPECTRA: (self._stages[0].source_stride - 1, self._num_bins),
            _EDGE: (1, self._last_channels),
            _POST: (POST_KERNEL - 1, self._last_channels),
            _FRAMES: (self._synthesis.num_tail_frames, 2 * self._half_window),
        }
        return merged_layouts((own, *(stage.layout for stage in self._stages)))

    def advance(self, mel: torch.Tensor, noise: torch.Tensor, tails: Tails, rows: BatchRows) -> torch.Tensor:
        """mel [B, n + 4, 80] and noise [B, 480 (n + 1)] -> [B, 480 n + 4] samples.

        They start 4 samples before the first frame to advance by: those of a first row belong to no signal. The last
        4 are only good where a row is final.
        """
        samples = self._source_samples(mel, noise, tails, rows)
        spectra = self._analysis.spectra(samples)  # [B, 120 n + 1, 18]
        x = self.filter(mel.to(self._dtype), spectra.to(self._dtype), tails, rows)
        return self._synthesise(x.to(torch.float32), tails, rows)

    def _source_samples(self, mel: torch.Tensor, noise: torch.Tensor, tails: Tails, rows: BatchRows) -> torch.Tensor:
        """[B, 8 + 480 n + 8]: what the spectra of the frames to advance by look at."""
        f0 = self._f0.advance(mel, tails, rows).to(torch.float32)  # [B, n + 1]
        frames = self.harmonic_source.frames(f0, tails[_CYCLES])
        tails[_CYCLES].copy_(rows.window(frames.cycles, 1, 1, offset=-1)[:, 0])
        samples = self.harmonic_source.samples(frames, noise)
        extended = self._mirror_ends(samples, tails, rows)
        tails[_SOURCE].copy_(rows.window(extended, units.SAMPLES_PER_FRAME, self._half_window))
        return extended

    def _mirror_ends(self, samples: torch.Tensor, tails: Tails, rows: BatchRows) -> torch.Tensor:
        """Half a window to either side: the neighbouring samples, or the signal's mirror image at its ends."""
        pad = self._half_window
        before = torch.where(rows.is_first[:, None], samples[:, 1 : pad + 1].flip(1), tails[_SOURCE])
        num_new = samples.shape[1] - units.SAMPLES_PER_FRAME + pad
        extended = torch.cat((before, samples[:, :num_new]), dim=1)
        after = rows.index(units.SAMPLES_PER_FRAME, pad, offset=pad)
        mirrored = rows.index(units.SAMPLES_PER_FRAME, pad, offset=-1).flip(1)  # about the last sample
        source = torch.where(rows.is_final[:, None], mirrored, after)
        return extended.scatter_(1, after, extended.gather(1, source))

    def filter(self, mel: torch.Tensor, spectra: torch.Tensor, tails: Tails, rows: BatchRows) -> torch.Tensor:
        """mel [B, n + 4, 80] and spectra [B, 120 n + 1, 18] -> [B, 120 n + 1, 18]."""
        context = tails[_SPECTRA].shape[1]
        known = behind_tail(tails[_SPECTRA], spectra, rows, self._spectra_per_frame)
        x = self._pre(mel)
        for stage in self._stages:
            x = stage.upsample.advance(functional.leaky_relu_(x, self._slope), tails, rows, stage.rate_before)
            if stage is self._stages[-1]:
                x = self._join_edge(x, tails, rows)
            x = stage.source(known[:, context - stage.source_stride + 1 :], tails, rows).add_(x)
            x = stage.filter(x, tails, rows)
        x = functional.leaky_relu_(x, POST_SLOPE)
        return self._post(behind_tail(tails[_POST], x, rows, self._spectra_per_frame))

    def _join_edge(self, x: torch.Tensor, tails: Tails, rows: BatchRows) -> torch.Tensor:
        """[B, N, C] -> [B, N + 1, C]: the column before, or at a stream's start the mirror image of column 1."""
        tail = tails[_EDGE]
        edge = torch.where(rows.is_first[:, None, None], x[:, 1:2], tail.to(x.dtype))
        joined = torch.cat((edge, x), dim=1)
        tail.copy_(rows.window(joined, self._spectra_per_frame, 1))
        return joined

    def _synthesise(self, x: torch.Tensor, tails: Tails, rows: BatchRows) -> torch.Tensor:
        """x [B, 120 n + 1, 18] -> [B, 480 n + 4]."""
        frames = self._synthesis.frames(x)
        tail = tails[_FRAMES]
        known = torch.cat((tail.transpose(1, 2), frames, frames.new_zeros(len(frames), frames.shape[1], 1)), dim=2)
        tail.copy_(rows.window(known.transpose(1, 2), self._spectra_per_frame, tail.shape[1]))
        # Beyond a row's last frame lies nothing: padding must not leak into the block that the last frames share.
        num_frames = self._spectra_per_frame
        beyond = rows.index(num_frames, 1, offset=tail.shape[1] + 1)
        known.scatter_(2, beyond[:, None].expand(-1, known.shape[1], -1), 0.0)
        blocks = self._synthesis.overlap(known)
        blocks = self._synthesis.scale_ends(blocks, rows.is_first, rows.index(num_frames, 1))
        return blocks.flatten(1).clamp_(-self._audio_limit, self._audio_limit)
