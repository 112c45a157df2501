"""Spectra as matrix products equal torch's transforms, edges included."""

import pytest
import torch

from tests.support import golden
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.vocoder.stft import Analysis, Synthesis, hann_window

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def config() -> VocoderConfig:
    return golden.golden_vocoder_config()


def test_window_is_torchs_but_for_the_last_bits() -> None:
    assert torch.allclose(hann_window(16), torch.hann_window(16), atol=3e-7, rtol=0)


def test_spectra_equal_stft_without_padding(config: VocoderConfig) -> None:
    samples = torch.randn(2, 4 * 30 + 12, generator=torch.Generator().manual_seed(1))
    expected = torch.stft(samples, 16, 4, window=hann_window(16), center=False, return_complex=True)
    expected = torch.cat((expected.real, expected.imag), dim=1).transpose(1, 2)
    assert torch.allclose(Analysis(config, device=CPU).spectra(samples), expected, atol=2e-6)


@pytest.mark.parametrize("num_frames", [120, 241])
def test_overlap_equals_istft_to_both_ends(config: VocoderConfig, num_frames: int) -> None:
    x = torch.randn(1, num_frames, 18, generator=torch.Generator().manual_seed(2))
    log_magnitude, angle = x.transpose(1, 2).chunk(2, dim=1)
    expected = torch.istft(torch.polar(log_magnitude.exp(), angle.sin()), 16, 4, window=hann_window(16))[0]
    synthesis = Synthesis(config, device=CPU)
    frames = torch.nn.functional.pad(synthesis.frames(x), (synthesis.num_tail_frames, 1))
    last_block = torch.tensor([[num_frames - 1]])
    blocks = synthesis.scale_ends(synthesis.overlap(frames), torch.tensor([True]), last_block)
    assert torch.allclose(blocks.flatten()[4:], expected, atol=1e-5)


def test_magnitudes_are_clipped_at_100(config: VocoderConfig) -> None:
    synthesis = Synthesis(config, device=CPU)
    loud, louder = torch.full((1, 4, 18), 5.0), torch.full((1, 4, 18), 5.0)
    louder[:, :, :9] = 9.0
    assert torch.equal(synthesis.frames(loud), synthesis.frames(louder))


def test_ends_of_other_rows_are_not_scaled(config: VocoderConfig) -> None:
    blocks = torch.ones(2, 5, 4)
    scaled = Synthesis(config, device=CPU).scale_ends(blocks, torch.tensor([False, True]), torch.tensor([[4], [3]]))
    untouched = (scaled == 1).all(dim=2)
    assert untouched.tolist() == [[True, True, True, True, False], [True, False, True, False, True]]
