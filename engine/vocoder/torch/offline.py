"""The vocoder over a whole sequence, written as the model is defined: the yardstick for the stateful one. No state.

Channels first, [channels, columns], one utterance at a time; edges are padded where upstream pads them.
"""

from collections.abc import Sequence

import torch
from torch.nn import functional

from voicegate.engine import units
from voicegate.engine.vocoder.model import VocoderModel
from voicegate.engine.vocoder.stft import hann_window
from voicegate.engine.vocoder.torch.f0 import LOOK_RIGHT_FRAMES, F0Predictor
from voicegate.engine.vocoder.torch.network import POST_SLOPE
from voicegate.engine.vocoder.torch.source import HarmonicSource
from voicegate.engine.vocoder.weights import source_stride


class OfflineVocoder:
    def __init__(self, model: VocoderModel) -> None:
        self._model = model
        self._config = config = model.config
        self._weights = model.weights
        self._window = hann_window(config.stft_size).to(model.device)
        self._f0 = F0Predictor(model.weights)
        self._source = HarmonicSource(config, model.weights)

    @torch.inference_mode()
    def render(self, mel: torch.Tensor, *, is_final: bool) -> torch.Tensor:
        """mel [80, T] -> samples [480 T], or as upstream emits while more is to come [480 (T - 8)].

        Raises VocoderStreamTooLong.
        """
        self._model.check_length(mel.shape[1])
        mel = mel.to(self._model.device)
        if not is_final and mel.shape[1] <= LOOK_RIGHT_FRAMES + self._config.look_right_frames + 1:
            return mel.new_zeros(0)
        spectra = self.spectra(self.source(self.f0(mel, is_final=is_final).to(torch.float32)))
        if is_final:
            return self._synthesise(self.filter(self.conv_pre(mel, is_final=True), spectra))
        # The two lookaheads are chained: the filter sees only the frames whose pitch is known.
        x = self.conv_pre(mel[:, :-LOOK_RIGHT_FRAMES], is_final=False)
        dropped = self._config.look_right_frames * units.SAMPLES_PER_FRAME // self._config.stft_hop
        samples = self._synthesise(self.filter(x, spectra[:, :-dropped]))
        return samples[: -units.SAMPLES_PER_FRAME]

    def f0(self, mel: torch.Tensor, *, is_final: bool) -> torch.Tensor:
        """mel [80, T] -> Hz [T], or [T - 3] while more is to come; float64."""
        return self._f0.whole(mel, is_final=is_final)

    def source(self, f0: torch.Tensor) -> torch.Tensor:
        """f0 [T] float32 -> excitation samples [480 T]."""
        start = f0.new_zeros(1, self._source.num_harmonics, dtype=torch.float64)
        frames = self._source.frames(f0[None], start)
        return self._source.samples(frames, self._model.noise[None, : len(f0) * units.SAMPLES_PER_FRAME])[0]

    def spectra(self, source: torch.Tensor) -> torch.Tensor:
        """Samples [480 T] -> [18, 120 T + 1]."""
        spectrum = torch.stft(
            source, self._config.stft_size, self._config.stft_hop, window=self._window, return_complex=True
        )
        return torch.cat((spectrum.real, spectrum.imag))

    def conv_pre(self, mel: torch.Tensor, *, is_final: bool) -> torch.Tensor:
        """mel [80, T] -> [base, T], or [base, T - 4] with the last frames as right context."""
        padded = functional.pad(mel, (0, self._config.look_right_frames)) if is_final else mel
        return self._conv("conv_pre", padded)

    def filter(self, x: torch.Tensor, spectra: torch.Tensor) -> torch.Tensor:
        """x [base, T] and spectra [18, 120 T + 1] -> [18, 120 T + 1]."""
        config = self._config
        num_blocks = len(config.resblock_kernels)
        for stage in range(len(config.upsample_rates)):
            x = self.upsample(stage, x)
            if stage == len(config.upsample_rates) - 1:
                x = torch.cat((x[:, 1:2], x), dim=1)  # upstream: ReflectionPad1d((1, 0))
            source = self.source_down(stage, spectra)
            x = x + self.resblock(f"source_resblocks.{stage}", source, config.source_resblock_dilations[stage])
            blocks = [
                self.resblock(f"resblocks.{stage * num_blocks + index}", x, dilations)
                for index, dilations in enumerate(config.resblock_dilations)
            ]
            x = torch.stack(blocks).sum(0) / num_blocks
        return self._left_conv("conv_post", functional.leaky_relu(x, POST_SLOPE))

    def upsample(self, stage: int, x: torch.Tensor) -> torch.Tensor:
        x = functional.leaky_relu(x, self._config.leaky_relu_slope)
        return self._left_conv(f"ups.{stage}", x.repeat_interleave(self._config.upsample_rates[stage], dim=1))

    def source_down(self, stage: int, spectra: torch.Tensor) -> torch.Tensor:
        stride = source_stride(self._config, stage)
        return self._conv(f"source_downs.{stage}", functional.pad(spectra, (stride - 1, 0)), stride=stride)

    def resblock(self, name: str, x: torch.Tensor, dilations: Sequence[int]) -> torch.Tensor:
        for index, dilation in enumerate(dilations):
            hidden = self._snake(f"{name}.activations1.{index}", x)
            hidden = self._left_conv(f"{name}.convs1.{index}", hidden, dilation=dilation)
            hidden = self._snake(f"{name}.activations2.{index}", hidden)
            x = x + self._left_conv(f"{name}.convs2.{index}", hidden)
        return x

    def _synthesise(self, x: torch.Tensor) -> torch.Tensor:
        log_magnitude, phase_input = x.chunk(2)
        magnitude = log_magnitude.exp().clamp(max=100)
        spectrum = torch.polar(magnitude, torch.sin(phase_input))
        samples = torch.istft(spectrum, self._config.stft_size, self._config.stft_hop, window=self._window)
        return samples.clamp(-self._config.audio_limit, self._config.audio_limit)

    def _snake(self, name: str, x: torch.Tensor) -> torch.Tensor:
        alpha = self._weights[f"{name}.alpha"][:, None]
        return x + torch.sin(x * alpha) ** 2 / (alpha + 1e-9)

    def _left_conv(self, name: str, x: torch.Tensor, *, dilation: int = 1) -> torch.Tensor:
        kernel = self._weights[f"{name}.weight"].shape[2]
        return self._conv(name, functional.pad(x, ((kernel - 1) * dilation, 0)), dilation=dilation)

    def _conv(self, name: str, x: torch.Tensor, *, dilation: int = 1, stride: int = 1) -> torch.Tensor:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return functional.conv1d(x, weight, bias, stride=stride, dilation=dilation)
