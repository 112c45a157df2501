"""Mel frames -> excitation levels on CUDA: the f0 predictor's float64 products by cuBLAS, all else in Triton."""

from collections.abc import Mapping

import torch
import triton

from voicegate.engine import units
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.vocoder.cuda.buffers import BufferSpec, Workspace
from voicegate.engine.vocoder.cuda.pitch_kernels import (
    pitch_head_kernel,
    pitch_layer_kernel,
    source_frames_kernel,
)
from voicegate.engine.vocoder.weights import F0_KERNELS, F0_LAYER_STRIDE, F0_PREFIX

# The harmonics' number, as a power of two.
HARMONIC_LANES = 16


class PitchBranch:
    def __init__(
        self,
        config: VocoderConfig,
        weights: Mapping[str, torch.Tensor],
        *,
        max_batch: int,
        max_frames: int,
        device: torch.device,
    ) -> None:
        names = [f"{F0_PREFIX}condnet.{layer * F0_LAYER_STRIDE}" for layer in range(len(F0_KERNELS))]
        self._config = config
        self._products = [weights[f"{name}.weight"].permute(2, 1, 0).contiguous() for name in names]  # [k, in, out]
        self._biases = [weights[f"{name}.bias"] for name in names]
        self._classifier = weights[f"{F0_PREFIX}classifier.weight"][0].contiguous()
        self._classifier_bias = weights[f"{F0_PREFIX}classifier.bias"]
        self._merge_weight = weights["m_source.l_linear.weight"][0].contiguous()
        self._merge_bias = weights["m_source.l_linear.bias"]
        lines = max_batch * (max_frames + F0_KERNELS[0])
        self._sums = torch.empty(
            max(F0_KERNELS) * lines * config.f0_channels, dtype=torch.float64, device=device
        )  # every tap's products of one layer

    @property
    def specs(self) -> list[BufferSpec]:
        exact = torch.float64
        layers = [
            BufferSpec(f"pitch.{layer}", self._config.f0_channels, exact, 1, 1, kernel - 1, tails=(kernel - 1,))
            for layer, kernel in enumerate(F0_KERNELS)
            if layer > 0
        ]
        return [
            BufferSpec("mel.exact", units.NUM_MELS, exact, margin=4, tails=(4,), is_loaded=False),
            *layers,
            BufferSpec("cycles", HARMONIC_LANES, exact, 1, 1, 1, tails=(1,)),
            BufferSpec("pitch", 1, torch.float32, extra=1),
            BufferSpec("levels", 2, torch.float32, 1, 1, 1, tails=(1,)),
        ]

    def run(self, space: Workspace, rows: torch.Tensor) -> None:
        """mel.exact -> levels; one frame more than the call advances by, which the next call sees again."""
        grid = (space.num_frames + 1, space.num_streams)
        channels = self._config.f0_channels
        shape = {"NUM_CHANNELS": channels, "BLOCK": triton.next_power_of_2(channels), "num_warps": 4}
        x = space.views["mel.exact"]
        for layer, kernel in enumerate(F0_KERNELS):
            sums = self._multiply(layer, x)
            common = (rows, sums.stride(0), x.shape[2])
            if layer + 1 < len(F0_KERNELS):
                out = space.views[f"pitch.{layer + 1}"]
                margin = F0_KERNELS[layer + 1] - 1
                pitch_layer_kernel[grid](
                    sums, self._biases[layer], out, *common, out.shape[2], margin, NUM_TAPS=kernel, **shape
                )
                x = out
        pitch_head_kernel[grid](
            sums,
            self._biases[-1],
            self._classifier,
            self._classifier_bias,
            space.views["pitch"],
            *common,
            grid[0],
            NUM_TAPS=F0_KERNELS[-1],
            **shape,
        )
        self._levels(space, rows)

    def _multiply(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        """x [1, B, N, in] -> [taps, B * N - taps + 1, out]: each tap's product over the streams' columns end to end.

        A convolution is the sum of its taps' products, shifted; taken apart, nothing is unfolded, and a single stream
        gives the device three times the tiles.
        """
        weight = self._products[layer]
        num_taps, inputs, outputs = weight.shape
        num_lines = x.shape[1] * x.shape[2] - num_taps + 1
        shifted = x.as_strided((num_taps, num_lines, inputs), (inputs, inputs, 1))
        sums = self._sums[: num_taps * num_lines * outputs].view(num_taps, num_lines, outputs)
        return torch.bmm(shifted, weight, out=sums)

    def _levels(self, space: Workspace, rows: torch.Tensor) -> None:
        config = self._config
        columns = space.num_frames + 1
        source_frames_kernel[(space.num_streams,)](
            space.views["pitch"],
            space.views["cycles"],
            space.views["levels"],
            self._merge_weight,
            self._merge_bias,
            rows,
            columns,
            float(units.SAMPLE_RATE_HZ),
            float(units.SAMPLES_PER_FRAME),
            config.sine_amplitude,
            config.noise_std,
            config.voiced_threshold_hz,
            NUM_HARMONICS=config.num_harmonics + 1,
            BLOCK_FRAMES=triton.next_power_of_2(columns),
            num_warps=4,
        )
