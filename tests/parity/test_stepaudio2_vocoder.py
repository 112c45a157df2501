"""Step-Audio2's vocoder against upstream's arrays, and padded batches against rows alone."""

import pytest
import torch

from tests.support.stepaudio2 import (
    golden_vocoder_config,
    load_arrays,
    normal,
    source_noise,
    vocoder_state,
)
from voicegate.engine import units
from voicegate.engine.families.stepaudio2.vocoder.network import RowLengths, StepAudio2Network
from voicegate.engine.families.stepaudio2.vocoder.weights import load_vocoder_weights

CPU = torch.device("cpu")
GOLDEN = load_arrays("hift.npz")


def close(actual: torch.Tensor, expected: torch.Tensor, atol: float) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


class Renderer:
    """The network and what it is given besides mel."""

    def __init__(self) -> None:
        config = golden_vocoder_config()
        weights = load_vocoder_weights(config, vocoder_state(), device=CPU)
        self.network = StepAudio2Network(config, weights, device=CPU)
        self.merge_weight = weights["m_source.l_linear.weight"][0]

    def source(self, mel: torch.Tensor, tag: str) -> torch.Tensor:
        lengths = full(mel)
        noise = source_noise(tag, len(mel), mel.shape[2]) @ self.merge_weight
        return self.network.source(self.network.f0(mel, lengths), lengths, noise)

    def speech(self, mel: torch.Tensor, source: torch.Tensor, lengths: RowLengths) -> torch.Tensor:
        return self.network.decode(mel, self.network.spectra(source, lengths), lengths)


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer()


def full(mel: torch.Tensor) -> RowLengths:
    return RowLengths(torch.full((len(mel),), mel.shape[2]), mel.shape[2])


def test_every_part_of_a_first_call(renderer: Renderer) -> None:
    mel = GOLDEN["nocache_mel"]
    close(renderer.network.f0(mel, full(mel)), GOLDEN["nocache_f0"], 1e-3)
    close(renderer.source(mel, "hift.nocache"), GOLDEN["nocache_source"][:, 0], 1e-3)
    source = GOLDEN["nocache_source"][:, 0]
    real, imaginary = renderer.network.spectra(source, full(mel)).chunk(2, dim=1)
    close(real, GOLDEN["nocache_stft_real"], 1e-4)
    close(imaginary, GOLDEN["nocache_stft_imag"], 1e-4)
    close(renderer.speech(mel, source, full(mel)), GOLDEN["nocache_speech"], 2e-3)


def test_a_later_call(renderer: Renderer) -> None:
    mel, cached = GOLDEN["cache_mel"], GOLDEN["cache_source_in"][:, 0]
    close(renderer.network.f0(mel, full(mel)), GOLDEN["cache_f0"], 1e-3)
    source = renderer.source(mel, "hift.cache")
    source[:, : cached.shape[1]] = cached
    close(source, GOLDEN["cache_source"][:, 0], 1e-3)
    close(renderer.speech(mel, source, full(mel)), GOLDEN["cache_speech"], 2e-3)


def test_a_batch(renderer: Renderer) -> None:
    mel = GOLDEN["batch2_mel"]
    source = renderer.source(mel, "hift.batch2")
    close(source, GOLDEN["batch2_source"][:, 0], 1e-3)
    close(renderer.speech(mel, source, full(mel)), GOLDEN["batch2_speech"], 2e-3)


def test_padded_rows_are_what_they_are_alone(renderer: Renderer) -> None:
    """Whatever lies behind them."""
    frames, longest = [12, 58, 9, 38], 58
    mel = 3 * normal("padded.mel", (4, 80, longest))
    noise = normal("padded.noise", (4, longest * units.SAMPLES_PER_FRAME))
    lengths = RowLengths(torch.tensor(frames), longest)
    network = renderer.network
    f0 = network.f0(mel, lengths)
    speech = renderer.speech(mel, network.source(f0, lengths, noise), lengths)
    for row, count in enumerate(frames):
        own = mel[row : row + 1, :, :count]
        num_samples = count * units.SAMPLES_PER_FRAME
        own_f0 = network.f0(own, full(own))
        close(f0[row : row + 1, :count], own_f0, 1e-6)
        source = network.source(own_f0, full(own), noise[row : row + 1, :num_samples])
        close(speech[row : row + 1, :num_samples], renderer.speech(own, source, full(own)), 5e-5)
