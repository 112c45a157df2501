"""The flow's weights and tables as the fixed-shape path reads them; layers are shared with the plain estimator."""

from dataclasses import dataclass, replace

import torch

from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.estimator import EstimatorLayer
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.weights import CONV_GROUPS
from voicegate.engine.model.config import EstimatorConfig


@dataclass(frozen=True, slots=True)
class FlowTensors:
    config: EstimatorConfig
    dtype: torch.dtype  # of weights and activations between products; residual and solver are float32
    cfg_rate: float
    is_pdl: bool  # kernels may start before the one before has ended, see CudaSolver
    pool: BlockPool
    layers: tuple[EstimatorLayer, ...]
    product_dtype: torch.dtype  # of the layers' weights and of what they are multiplied with: see in_float8
    input_scale: torch.Tensor  # [] float32, what an 8-bit float stands for
    weight_scale: torch.Tensor
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
    one = torch.ones((), device=model.device)
    (weight1, bias1), (weight2, bias2) = estimator.convs
    return FlowTensors(
        config=estimator.config,
        dtype=estimator.dtype,
        cfg_rate=model.config.cfg_rate,
        is_pdl=is_pdl,
        pool=pool,
        layers=estimator.layers,
        product_dtype=estimator.dtype,
        input_scale=one,
        weight_scale=one,
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


def in_float8(tensors: FlowTensors) -> FlowTensors:
    """With the layers' weights in float8_e4m3fn, for FLOAT8_STEP_OPS.

    One scale for all weights and none for inputs are as good as one for each output and line: the type has 15 powers
    of two at full precision. In the trained tiny model no normed line passes 14, nothing behind GELU or attention 7.
    """
    dtype = torch.float8_e4m3fn
    weights = [w for layer in tensors.layers for w in _weights(layer).values()]
    largest = torch.stack([weight.abs().max() for weight in weights]).max().float()
    scale = largest / torch.finfo(dtype).max
    layers = tuple(
        replace(layer, **{name: (weight.float() / scale).to(dtype) for name, weight in _weights(layer).items()})
        for layer in tensors.layers
    )
    return replace(tensors, layers=layers, product_dtype=dtype, weight_scale=scale)


def _weights(layer: EstimatorLayer) -> dict[str, torch.Tensor]:
    return {name: getattr(layer, name) for name in ("qkv_weight", "attn_out_weight", "ff_in_weight", "ff_out_weight")}


def _by_tap(weight: torch.Tensor) -> torch.Tensor:
    """[D, in, 1, taps] of a grouped convolution -> [groups, taps, in, out], each tap's product contiguous."""
    channels_out, channels_in, _, taps = weight.shape
    grouped = weight.reshape(CONV_GROUPS, channels_out // CONV_GROUPS, channels_in, taps)
    return grouped.permute(0, 3, 2, 1).contiguous()
