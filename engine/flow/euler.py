"""The ODE around the estimator: fixed times, fixed noise, classifier-free guidance. Euler, as upstream."""

from dataclasses import dataclass
from typing import Final

import torch

from voicegate.engine import units

# Upstream draws noise for 300 s once; a stream starts from the frames at its own absolute positions.
NOISE_FRAMES: Final = 15_000


@dataclass(frozen=True, slots=True)
class EulerSchedule:
    times: tuple[float, ...]  # at which the velocity is asked for
    widths: tuple[float, ...]  # of the step that follows

    @property
    def num_steps(self) -> int:
        return len(self.times)


def cosine_schedule(num_steps: int) -> EulerSchedule:
    """t_k = 1 - cos(pi/2 * k/n). All float32: t is accumulated, so its rounding is part of the model's input."""
    spans = 1 - torch.cos(torch.linspace(0, 1, num_steps + 1) * 0.5 * torch.pi)
    time, width = spans[0], spans[1] - spans[0]
    times, widths = [], []
    for step in range(1, num_steps + 1):
        times.append(time.item())
        widths.append(width.item())
        time = time + width
        if step < num_steps:
            width = spans[step + 1] - time
    return EulerSchedule(tuple(times), tuple(widths))


def euler_step(x: torch.Tensor, velocity: torch.Tensor, *, width: float, cfg_rate: float) -> torch.Tensor:
    """x [B, n, 80], velocity [C, B, n, 80] (conditioned, and unconditioned where it was asked for) -> the next x."""
    return x + width * guide(velocity.to(x.dtype), cfg_rate=cfg_rate)


def guide(velocity: torch.Tensor, *, cfg_rate: float) -> torch.Tensor:
    """Classifier-free guidance (arXiv:2207.12598): [2, ...] (conditioned, unconditioned) -> [...].

    At a rate of 0 the unconditioned half has no weight, so [1, ...] will do.
    """
    if len(velocity) == 1:
        return velocity[0]
    return (1 + cfg_rate) * velocity[0] - cfg_rate * velocity[1]


def upstream_noise() -> torch.Tensor:
    """[80, 15000]: the buffer that upstream's constructor draws after seeding torch with 0.

    torch's AVX2 and AVX-512 kernels agree on it to the bit; its plain kernel is up to 2.3e-6 off.
    """
    generator = torch.Generator().manual_seed(0)
    return torch.randn([1, units.NUM_MELS, NOISE_FRAMES], generator=generator)[0]
