"""The estimator's weights and tables as its kernels read them; layers are shared with the plain form."""

from dataclasses import dataclass

import torch

from voicegate.engine.device.overlap import can_overlap
from voicegate.engine.families.stepaudio2.config import ConvDitConfig
from voicegate.engine.families.stepaudio2.flow.estimator import EstimatorLayer, Linear
from voicegate.engine.families.stepaudio2.flow.memory import FlowMemory
from voicegate.engine.families.stepaudio2.flow.model import StepAudio2Flow


@dataclass(frozen=True, slots=True)
class StepTensors:
    config: ConvDitConfig
    dtype: torch.dtype  # of weights and activations between products; residual and solver are float32
    cfg_rate: float
    is_pdl: bool  # kernels may start before the one before has ended, see overlap
    memory: FlowMemory
    layers: tuple[EstimatorLayer, ...]
    modulations: torch.Tensor  # [Euler steps, MODULATIONS * depth + 2, D] float32: a group is scale, shift and gate
    x_weight: torch.Tensor  # [D, 80]
    out: Linear
    widths: torch.Tensor  # [Euler steps] float32


def step_tensors(model: StepAudio2Flow, memory: FlowMemory) -> StepTensors:
    estimator = model.estimator
    table = estimator.modulation_table
    # Upstream's groups are shift, scale and gate, the last one without a gate.
    order = [row + (1, -1, 0)[row % 3] for row in range(table.shape[1])]
    return StepTensors(
        config=estimator.config,
        dtype=estimator.dtype,
        cfg_rate=model.config.cfg_rate,
        is_pdl=can_overlap(model.device),
        memory=memory,
        layers=estimator.layers,
        modulations=table[:, order].contiguous(),
        x_weight=estimator.x_weight,
        out=estimator.out,
        widths=model.widths,
    )
