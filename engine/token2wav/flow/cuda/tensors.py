"""The flow's weights and tables as the fixed-shape path reads them; layers are shared with the plain estimator."""

from dataclasses import dataclass

import torch

from engine.model_config import EstimatorConfig
from engine.token2wav.flow.block_pool import BlockPool
from engine.token2wav.flow.estimator import EstimatorLayer
from engine.token2wav.flow.model import FlowModel
from engine.token2wav.flow.weights import CONV_GROUPS


@dataclass(frozen=True, slots=True)
class FlowTensors:
    config: EstimatorConfig
    dtype: torch.dtype  # of weights and activations between products; residual and solver are float32
    cfg_rate: float
    is_pdl: bool  # kernels may start before the one before has ended, see FlowCudaConfig.overlap_launches
    pool: BlockPool
    layers: tuple[EstimatorLayer, ...]
    modulations: torch.Tensor  # [Euler steps, 6 * depth + 2, D] float32, see modulation_table
    x_weight: torch.Tensor  # [D, 80]
    input_bias: torch.Tensor  # [D] float32
    conv_weights: tuple[torch.Tensor, torch.Tensor]  # [groups, taps, in, out] each
    conv_biases: tuple[torch.Tensor, torch.Tensor]  # [D]
    out_weight: torch.Tensor  # [80, D]
    out_bias: torch.Tensor  # [80] float32
    cosines: torch.Tensor  # [max_frames, d / 2] float32, of the rotary angles
    sines: torch.Tensor
    widths: torch.Tensor  # [Euler steps] float32


def flow_tensors(model: FlowModel, pool: BlockPool, *, is_pdl: bool = False) -> FlowTensors:
    estimator = model.estimator
    (weight1, bias1), (weight2, bias2) = estimator.convs
    return FlowTensors(
        config=estimator.config,
        dtype=estimator.dtype,
        cfg_rate=model.config.cfg_rate,
        is_pdl=is_pdl,
        pool=pool,
        layers=estimator.layers,
        modulations=estimator.modulation_table,
        x_weight=estimator.x_weight,
        input_bias=estimator.input_bias,
        conv_weights=(_by_tap(weight1), _by_tap(weight2)),
        conv_biases=(bias1, bias2),
        out_weight=estimator.out_weight,
        out_bias=estimator.out_bias,
        cosines=model.rotations.real.contiguous(),
        sines=model.rotations.imag.contiguous(),
        widths=torch.tensor(model.schedule.widths, dtype=torch.float32, device=model.device),
    )


def _by_tap(weight: torch.Tensor) -> torch.Tensor:
    """[D, in, 1, taps] of a grouped convolution -> [groups, taps, in, out], each tap's product contiguous."""
    channels_out, channels_in, _, taps = weight.shape
    grouped = weight.reshape(CONV_GROUPS, channels_out // CONV_GROUPS, channels_in, taps)
    return grouped.permute(0, 3, 2, 1).contiguous()
