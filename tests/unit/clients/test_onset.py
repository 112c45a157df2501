"""Where speech begins: after silence and clicks, never in them."""

import numpy as np
import pytest

from clients.python.onset import onset_s
from tests.unit.clients.speech import RATE_HZ, tone

pytestmark = pytest.mark.unit


def silence(duration_ms: int) -> bytes:
    return bytes(2 * RATE_HZ * duration_ms // 1000)


def test_leading_silence_is_counted() -> None:
    assert onset_s(silence(120) + tone(4_800).tobytes(), RATE_HZ) == pytest.approx(0.12)


def test_a_click_is_no_speech() -> None:
    click = tone(240).tobytes()
    assert onset_s(silence(50) + click + silence(50) + tone(4_800).tobytes(), RATE_HZ) == pytest.approx(0.11)


@pytest.mark.parametrize(("amplitude", "expected"), [(0.012, None), (0.016, 0.0)])
def test_the_gate_is_minus_40_dbfs_of_rms(amplitude: float, expected: float | None) -> None:
    # A sine's RMS is 3 dB below its peak: -40 dBFS is a peak of 0.01414.
    samples = (amplitude * 32_768 * np.sin(2 * np.pi * 500 * np.arange(4_800) / RATE_HZ)).astype(np.int16)
    assert onset_s(samples.tobytes(), RATE_HZ) == expected


def test_silence_has_no_onset() -> None:
    assert onset_s(silence(500), RATE_HZ) is None
    assert onset_s(b"", RATE_HZ) is None
