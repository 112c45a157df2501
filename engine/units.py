"""Rates of the CosyVoice families and the exact conversions between them; no other module repeats these numbers.

1 speech token = 2 mel frames = 960 samples = 40 ms; 1 mel frame = 480 samples = 20 ms = one Opus packet.
"""

from typing import Final


def _exact_div(numerator: int, denominator: int) -> int:
    quotient, remainder = divmod(numerator, denominator)
    if remainder:
        raise ValueError(f"{numerator} is not a multiple of {denominator}")
    return quotient


SAMPLE_RATE_HZ: Final = 24_000
TOKEN_RATE_HZ: Final = 25
FRAMES_PER_TOKEN: Final = 2
FRAME_RATE_HZ: Final = TOKEN_RATE_HZ * FRAMES_PER_TOKEN
SAMPLES_PER_FRAME: Final = _exact_div(SAMPLE_RATE_HZ, FRAME_RATE_HZ)
SAMPLES_PER_TOKEN: Final = SAMPLES_PER_FRAME * FRAMES_PER_TOKEN
MS_PER_FRAME: Final = _exact_div(1000, FRAME_RATE_HZ)
MS_PER_TOKEN: Final = MS_PER_FRAME * FRAMES_PER_TOKEN
NUM_MELS: Final = 80

# RFC 7845: whatever the input rate, Opus time is counted at 48 kHz.
OPUS_CLOCK_HZ: Final = 48_000
OPUS_CLOCK_PER_SAMPLE: Final = _exact_div(OPUS_CLOCK_HZ, SAMPLE_RATE_HZ)


def samples_to_ms(num_samples: int) -> int:
    """Whole milliseconds in `num_samples` at SAMPLE_RATE_HZ, rounded down."""
    return num_samples * 1000 // SAMPLE_RATE_HZ


def ms_to_samples(duration_ms: int) -> int:
    """Samples at SAMPLE_RATE_HZ in `duration_ms`."""
    return _exact_div(SAMPLE_RATE_HZ, 1000) * duration_ms
