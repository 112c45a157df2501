"""Speech is told from sounds that stay the same, however quiet, noisy or short it is."""

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.unit.engine.voices.recordings import PEOPLE, noise, read, with_noise
from voicegate.engine.interface import VoiceRefused
from voicegate.engine.voices.audio_file import Recording
from voicegate.engine.voices.checks import MIN_VARIATION_DB, check_speech, variation_db

RATE_HZ = 24_000
TIMES_S = np.arange(4 * RATE_HZ) / RATE_HZ


def tone(hz: float) -> npt.NDArray[np.float64]:
    return np.sin(2 * np.pi * hz * TIMES_S)


def hum(hz: float) -> npt.NDArray[np.float64]:
    return sum((tone(hz * harmonic) / harmonic for harmonic in range(1, 9)), np.zeros_like(TIMES_S))


def chord(*pitches_hz: float) -> npt.NDArray[np.float64]:
    return sum(map(tone, pitches_hz), np.zeros_like(TIMES_S))


IS_ON = TIMES_S * 2 % 1 < 0.5
SWELL = 1.01 + np.sin(2 * np.pi * 4 * TIMES_S)
STEADY = {
    "tone": tone(440),
    "low tone": tone(90),
    "beeps": tone(1000) * IS_ON,
    "tone that swells": tone(300) * SWELL,
    "hum": hum(50),
    "buzz": hum(140) * SWELL,
    "chord": chord(220, 277, 330, 440),
    "two chords": np.where(TIMES_S < 2, chord(220, 277, 330, 440), chord(246, 311, 370, 494)),
    "vibrato": sum(
        np.sin(2 * np.pi * h * 220 * TIMES_S + h * 8 * np.sin(11 * np.pi * TIMES_S)) / h for h in range(1, 8)
    ),
    "white noise": noise("white", len(TIMES_S)),
    "pink noise": noise("pink", len(TIMES_S)),
    "brown noise": noise("brown", len(TIMES_S)),
    "noise that comes and goes": noise("pink", len(TIMES_S)) * IS_ON,
    "surf": noise("white", len(TIMES_S)) * SWELL,
    "fan": noise("pink", len(TIMES_S)) + 0.5 * tone(120),
    "clicks": (np.arange(len(TIMES_S)) % (RATE_HZ // 20) < 3) * 1.0,
}


@pytest.mark.parametrize("name", STEADY)
@pytest.mark.parametrize("level", [0.001, 0.3])
def test_what_stays_the_same_is_refused_however_loud(name: str, level: float) -> None:
    """With the noise of 16 bits, which is all that a pause between beeps has."""
    samples = STEADY[name]
    quiet = level * samples / np.abs(samples).max() + 1e-5 * noise("white", len(samples))
    recording = Recording(torch.from_numpy(quiet.astype(np.float32)), RATE_HZ)
    assert variation_db(recording) < 0.8 * MIN_VARIATION_DB
    if level > 0.01:
        with pytest.raises(VoiceRefused, match=r"no speech: its sound stays the same.* varies by [01]\.\d dB"):
            check_speech(recording)


@pytest.mark.parametrize("speaker", PEOPLE)
@pytest.mark.parametrize("level_db", [-60, -40, -20])
@pytest.mark.parametrize("kind", ["white", "pink", "brown"])
@pytest.mark.parametrize("snr_db", [30, 10, 5, 0])
def test_speech_is_taken_however_quiet_and_with_as_much_noise_in_it(
    speaker: str, level_db: int, kind: str, snr_db: int
) -> None:
    recording = with_noise(read(speaker), kind, snr_db)
    scale = 10 ** (level_db / 20) / float(recording.samples.std())
    recording = Recording(recording.samples * scale, recording.rate_hz)
    assert variation_db(recording) > 1.2 * MIN_VARIATION_DB
    check_speech(recording)


@pytest.mark.parametrize("speaker", PEOPLE)
def test_every_second_of_it_is_speech(speaker: str) -> None:
    whole = read(speaker)
    for start in range(0, len(whole.samples) - whole.rate_hz, whole.rate_hz // 4):
        check_speech(Recording(whole.samples[start : start + whole.rate_hz], whole.rate_hz))


def test_hum_beside_speech_does_not_hide_it() -> None:
    speech = read("woman")
    with_hum = speech.samples + 0.2 * torch.from_numpy(hum(50)[: len(speech.samples)]).float()
    check_speech(Recording(with_hum * 0.5, speech.rate_hz))
