"""The resampler: lengths, levels and what it lets through; PromptAudio holds everything at its own rate."""

import math

import pytest
import torch

from voicegate.engine.voices.features import PromptAudio, resample


def tone(hz: float, rate_hz: int, seconds: float = 1.0) -> torch.Tensor:
    return torch.sin(2 * math.pi * hz * torch.arange(round(seconds * rate_hz)).double() / rate_hz).float()


@pytest.mark.parametrize("to_hz", [16_000, 24_000])
@pytest.mark.parametrize("from_hz", [16_000, 22_050, 24_000, 44_100, 48_000, 31_337])
def test_a_tone_is_the_same_tone_at_another_rate(from_hz: int, to_hz: int) -> None:
    got = resample(tone(440, from_hz), from_hz, to_hz)
    assert len(got) == to_hz
    middle = slice(100, -100)  # the filter runs out of samples at the ends
    torch.testing.assert_close(got[middle], tone(440, to_hz)[middle], rtol=0, atol=1e-3)


def test_what_the_lower_rate_cannot_hold_is_gone() -> None:
    heard = resample(tone(11_000, 48_000), 48_000, 16_000)
    assert float(heard[100:-100].abs().max()) < 1e-2


def test_pieces_of_a_long_recording_join_without_a_trace() -> None:
    long = tone(1_000, 22_050, 4.0)
    at = 65_536  # where the second piece begins
    got = resample(long, 22_050, 24_000)
    torch.testing.assert_close(got[at - 50 : at + 50], tone(1_000, 24_000, 4.0)[at - 50 : at + 50], rtol=0, atol=1e-3)


def test_every_part_has_its_own_rate() -> None:
    audio = PromptAudio.from_samples(tone(300, 48_000, 2.0), 48_000)
    assert (len(audio.samples_16k), len(audio.samples_24k), tuple(audio.mel.shape)) == (32_000, 48_000, (100, 80))
