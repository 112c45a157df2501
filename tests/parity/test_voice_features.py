"""The three spectra equal those of upstream's front end (Matcha, Whisper, Kaldi)."""

from collections.abc import Callable

import pytest
import torch

from tests.support import stepaudio2
from tests.support.golden import load_arrays
from voicegate.engine.voices.features import mel_24k, speaker_fbank, whisper_log_mel


@pytest.mark.parametrize(
    ("feature", "samples", "wanted", "tolerance"),
    [
        # Logarithms: roundings of the FFT differ between processors (2e-6 on one, 1.2e-5 on another).
        (lambda wav: mel_24k(wav).T, "wav24", "mel24", 5e-5),
        (whisper_log_mel, "wav16", "whisper_logmel128", 5e-5),
        # Upstream's own rounding: its filters are computed in float32.
        (speaker_fbank, "wav16", "kaldi_fbank80_cmn", 3e-4),
    ],
)
def test_features_equal_upstreams(
    feature: Callable[[torch.Tensor], torch.Tensor], samples: str, wanted: str, tolerance: float
) -> None:
    golden = load_arrays("frontend_audio.npz")
    got = feature(torch.from_numpy(golden[samples][0]))
    expected = torch.from_numpy(golden[wanted]).reshape(got.shape)
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance)


def test_the_second_familys_mel_ends_at_8_khz() -> None:
    golden = stepaudio2.load_arrays("features.npz")
    mel = mel_24k(golden["resampled_24k"], top_hz=8000)
    torch.testing.assert_close(mel, golden["mel24k_80"], rtol=0, atol=5e-5)
