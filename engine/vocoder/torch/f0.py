"""Pitch from mel frames, in float64 throughout: the phase sums what this makes, so rounding would be heard as drift.

Frame t needs mel frames t .. t + 3 and, through four left-looking convolutions, the eight before t.
"""

from collections.abc import Mapping
from typing import Final

import torch
from torch.nn import functional

from voicegate.engine.vocoder.torch.state import BatchRows, Layout, Tails, behind_tail
from voicegate.engine.vocoder.weights import F0_KERNELS, F0_LAYER_STRIDE, F0_PREFIX

LOOK_RIGHT_FRAMES: Final = F0_KERNELS[0] - 1


class F0Predictor:
    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        names = [f"{F0_PREFIX}condnet.{layer * F0_LAYER_STRIDE}" for layer in range(len(F0_KERNELS))]
        self._weights = [weights[f"{name}.weight"] for name in names]  # [out, in, k]
        self._biases = [weights[f"{name}.bias"] for name in names]
        self._classifier = weights[f"{F0_PREFIX}classifier.weight"]
        self._classifier_bias = weights[f"{F0_PREFIX}classifier.bias"]

    @property
    def layout(self) -> Layout:
        """Tails of the left-looking layers; the first layer's input is the caller's."""
        return {
            f"f0.{layer}": (kernel - 1, self._weights[layer].shape[1])
            for layer, kernel in enumerate(F0_KERNELS)
            if layer > 0
        }

    def advance(self, mel: torch.Tensor, tails: Tails, rows: BatchRows) -> torch.Tensor:
        """mel [B, n + 3, 80] -> f0 [B, n] in Hz, float64. The tails end up before the rows' last frame."""
        x = self._layer(0, mel.to(torch.float64))
        for layer in range(1, len(F0_KERNELS)):
            x = self._layer(layer, behind_tail(tails[f"f0.{layer}"], x, rows, 1))
        return functional.linear(x, self._classifier, self._classifier_bias)[:, :, 0].abs_()

    def whole(self, mel: torch.Tensor, *, is_final: bool) -> torch.Tensor:
        """mel [80, T] -> f0 [T], or [T - 3] while more frames are to come."""
        x = mel.T[None].to(torch.float64)
        if is_final:
            x = functional.pad(x, (0, 0, 0, LOOK_RIGHT_FRAMES))
        x = self._layer(0, x)
        for layer in range(1, len(F0_KERNELS)):
            x = self._layer(layer, functional.pad(x, (0, 0, F0_KERNELS[layer] - 1, 0)))
        return functional.linear(x, self._classifier, self._classifier_bias)[0, :, 0].abs_()

    def _layer(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        """x [B, n + k - 1, in] -> [B, n, out]; a matrix product, since torch has no fast float64 convolution."""
        weight = self._weights[layer]
        columns = x.unfold(1, weight.shape[2], 1).flatten(2)  # [B, n, in * k]
        return functional.elu_(functional.linear(columns, weight.flatten(1), self._biases[layer]))
