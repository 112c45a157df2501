"""The solver's schedule, step and noise."""

import hashlib

import pytest
import torch

from tests.support.golden import load_arrays
from voicegate.engine.flow.euler import cosine_schedule, euler_step, upstream_noise


def test_schedule_is_upstreams_to_the_bit() -> None:
    dit = load_arrays("dit.npz")
    schedule = cosine_schedule(10)
    assert torch.equal(torch.tensor(schedule.times), torch.from_numpy(dit["t_used"]))
    assert torch.equal(torch.tensor(schedule.widths), torch.from_numpy(dit["dt_used"]))


@pytest.mark.parametrize("num_steps", [1, 4, 10])
def test_schedule_spans_zero_to_one(num_steps: int) -> None:
    schedule = cosine_schedule(num_steps)
    assert schedule.num_steps == num_steps == len(schedule.widths)
    assert schedule.times[0] == 0
    assert schedule.times[-1] + schedule.widths[-1] == pytest.approx(1, abs=1e-6)


def test_step_guides_away_from_the_unconditioned_half() -> None:
    x = torch.tensor([[[1.0]]])
    velocity = torch.tensor([[[[2.0]]], [[[3.0]]]])
    stepped = euler_step(x, velocity, width=0.5, cfg_rate=0.7)
    assert stepped.item() == pytest.approx(1 + 0.5 * (1.7 * 2 - 0.7 * 3))


def test_noise_is_upstreams_whole_buffer() -> None:
    noise = upstream_noise()
    assert noise.shape == (80, 15_000)
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        pytest.skip("torch's plain kernel draws slightly other numbers: compared in tests/parity/test_flow_golden.py")
    expected = str(load_arrays("flow.npz")["noise_sha256"])
    assert hashlib.sha256(noise.numpy().tobytes()).hexdigest() == expected


def test_noise_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    upstream_noise()
    assert torch.equal(torch.get_rng_state(), before)
