"""The closed form of the source equals the sum that it replaces, and running sums carry over exactly."""

import math

import pytest
import torch

from tests.support import golden
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.vocoder.excitation import upstream_excitation
from voicegate.engine.vocoder.torch.source import HarmonicSource

WEIGHTS = {
    "m_source.l_linear.weight": torch.linspace(-1, 1, 9)[None],
    "m_source.l_linear.bias": torch.tensor([0.05]),
}
START = torch.zeros(1, 9, dtype=torch.float64)


@pytest.fixture(scope="module")
def config() -> VocoderConfig:
    return golden.golden_vocoder_config()


def pitches(num_frames: int) -> torch.Tensor:
    """Voiced and unvoiced stretches, [1, T] Hz."""
    return (torch.rand(1, num_frames, generator=torch.Generator().manual_seed(3)) * 400 - 80).clamp(min=0)


def test_samples_equal_the_sum_over_harmonics(config: VocoderConfig) -> None:
    source = HarmonicSource(config, WEIGHTS)
    frames = source.frames(pitches(6), START)
    (table,) = upstream_excitation(6 * 480)
    noise = (table @ source.merge_weight)[None]
    excitation = frames.sine.repeat_interleave(480, 1) + frames.noise_gain.repeat_interleave(480, 1)[:, :, None] * table
    expected = torch.tanh(excitation @ WEIGHTS["m_source.l_linear.weight"][0] + WEIGHTS["m_source.l_linear.bias"])
    assert torch.allclose(source.samples(frames, noise), expected, atol=1e-6)


def test_running_sums_carry_over_bit_for_bit(config: VocoderConfig) -> None:
    source = HarmonicSource(config, WEIGHTS)
    f0 = pitches(200)
    whole = source.frames(f0, START)
    cycles, parts = START, []
    for piece in torch.split(f0, [1, 60, 139], dim=1):
        part = source.frames(piece, cycles)
        cycles = part.cycles[:, -1]
        parts.append(part)
    assert torch.equal(torch.cat([part.cycles for part in parts], dim=1), whole.cycles)
    # Vectorised sin and its remainder loop may differ in the last bit.
    assert torch.allclose(torch.cat([part.sine for part in parts], dim=1), whole.sine, atol=1e-7)


def test_sums_are_rounded_as_cpu_cumsum_rounds_them(config: VocoderConfig) -> None:
    f0 = pitches(3000)
    expected = ((f0[:, :, None] * torch.arange(1.0, 10.0) / 24_000) % 1).cumsum(1)
    assert torch.equal(HarmonicSource(config, WEIGHTS).frames(f0, START).cycles.to(torch.float32), expected)


def test_unvoiced_frames_are_noise_alone(config: VocoderConfig) -> None:
    frames = HarmonicSource(config, WEIGHTS).frames(torch.tensor([[0.0, 10.0, 10.5]]), START)
    assert not frames.sine[:, :2].any()
    assert frames.sine[:, 2].any()
    assert torch.allclose(frames.noise_gain, torch.tensor([[0.1 / 3, 0.1 / 3, 0.003]]))


def test_phase_is_held_over_a_frame_and_counts_it_whole(config: VocoderConfig) -> None:
    frames = HarmonicSource(config, WEIGHTS).frames(torch.tensor([[100.0]]), START)
    expected = 0.1 * math.sin(2 * math.pi * 100 / 24_000 * 480)
    assert frames.sine[0, 0, 0].item() == pytest.approx(expected, abs=1e-6)
