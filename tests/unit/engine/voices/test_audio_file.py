"""Sound files of every usual kind become the same mono samples; what is none is refused by name."""

import numpy as np
import pytest

from tests.unit.engine.voices.sounds import file_of, speechlike
from voicegate.engine.interface import VoiceRefused
from voicegate.engine.voices.audio_file import decode_recording

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("kind", "subtype", "tolerance"),
    [
        ("WAV", "PCM_U8", 1e-2),
        ("WAV", "PCM_16", 1e-4),
        ("WAV", "PCM_24", 1e-6),
        ("WAV", "PCM_32", 1e-6),
        ("WAV", "FLOAT", 0.0),
        ("WAVEX", "PCM_16", 1e-4),
        ("FLAC", "PCM_16", 1e-4),
    ],
)
def test_every_width_gives_the_same_samples(kind: str, subtype: str, tolerance: float) -> None:
    samples = speechlike(0.5)
    recording = decode_recording(file_of(samples, kind=kind, subtype=subtype))
    assert (recording.rate_hz, recording.seconds) == (24_000, 0.5)
    np.testing.assert_allclose(recording.samples.numpy(), samples, rtol=0, atol=tolerance)


def test_channels_are_averaged() -> None:
    samples = speechlike(0.5)
    stereo = np.stack([samples, np.zeros_like(samples)], axis=1)
    recording = decode_recording(file_of(stereo, subtype="FLOAT"))
    np.testing.assert_allclose(recording.samples.numpy(), samples / 2, rtol=0, atol=1e-7)


@pytest.mark.parametrize("content", [b"", b"RIFF", b"<html>not found</html>", file_of(speechlike(0.1))[:20]])
def test_what_is_no_sound_file_is_refused(content: bytes) -> None:
    with pytest.raises(VoiceRefused, match="no sound file that can be read"):
        decode_recording(content)


def test_hours_are_refused_before_they_are_decoded() -> None:
    silence = file_of(np.zeros(601 * 8_000, np.float32), rate_hz=8_000, kind="FLAC")
    with pytest.raises(VoiceRefused, match="601 s long"):
        decode_recording(silence)
