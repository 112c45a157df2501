"""Silence around speech is left out, but for a fifth of a second; speech never is."""

import numpy as np
import pytest
import torch

from tests.support.golden import TINY_MODEL_DIR
from tests.unit.engine.voices.recordings import PEOPLE, noise, read, with_noise
from tests.unit.engine.voices.sounds import file_of
from voicegate.engine.interface import VoiceRefused
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.audio_file import Recording
from voicegate.engine.voices.enrolment import load_enroller
from voicegate.engine.voices.features import resample
from voicegate.engine.voices.trimming import NOT_TRIMMED, Trimmed, without_silence

SPEECH = read("woman")


def between(speech: Recording, front_s: float, behind_s: float, noise_dbfs: float | None = None) -> Recording:
    front, behind = (torch.zeros(round(seconds * speech.rate_hz)) for seconds in (front_s, behind_s))
    samples = torch.cat([front, speech.samples, behind])
    if noise_dbfs is not None:
        samples = samples + 10 ** (noise_dbfs / 20) * torch.from_numpy(noise("pink", len(samples))).float()
    return Recording(samples, speech.rate_hz)


@pytest.mark.parametrize("speaker", PEOPLE)
@pytest.mark.parametrize("noise_dbfs", [None, -75.0, -60.0, -50.0])
@pytest.mark.parametrize(("front_s", "behind_s"), [(1.4, 1.4), (12.0, 6.0), (0.0, 3.0), (20.0, 0.0)])
def test_a_fifth_of_a_second_stays(speaker: str, noise_dbfs: float | None, front_s: float, behind_s: float) -> None:
    speech = read(speaker)
    found, trimmed = without_silence(between(speech, front_s, behind_s, noise_dbfs))
    assert abs(found.seconds - speech.seconds) < 0.45
    for seconds, told_s in ((front_s, trimmed.start_s), (behind_s, trimmed.end_s)):
        assert abs(told_s - max(seconds - 0.2, 0.0)) < 0.25
    left_out_s = front_s + speech.seconds + behind_s - found.seconds
    assert trimmed.start_s + trimmed.end_s == pytest.approx(left_out_s, abs=0.01)


@pytest.mark.parametrize("speaker", PEOPLE)
@pytest.mark.parametrize("snr_db", [60, 30, 20, 10, 0])
def test_speech_without_silence_around_it_is_left_as_it_is(speaker: str, snr_db: float) -> None:
    recording = with_noise(read(speaker), "pink", snr_db)
    found, trimmed = without_silence(recording)
    assert not trimmed
    assert found.samples.equal(recording.samples)


def test_a_pause_within_it_stays() -> None:
    both = Recording(torch.cat([SPEECH.samples, torch.zeros(2 * SPEECH.rate_hz), SPEECH.samples]), SPEECH.rate_hz)
    assert without_silence(both)[1] == NOT_TRIMMED


def test_a_click_is_no_speech() -> None:
    recording = between(SPEECH, 3.0, 3.0, -70.0)
    for at_s in (0.5, 1.5, 7.5):
        recording.samples[round(at_s * recording.rate_hz) :][:40] = 0.9
    found, trimmed = without_silence(recording)
    assert abs(found.seconds - SPEECH.seconds) < 0.45
    assert str(trimmed).startswith("silence was left out: 2.")


@pytest.mark.parametrize("rate_hz", [16_000, 44_100, 48_000, 192_000])
def test_whatever_the_rate(rate_hz: int) -> None:
    samples = resample(SPEECH.samples, SPEECH.rate_hz, rate_hz)
    found, _ = without_silence(between(Recording(samples, rate_hz), 2.0, 2.0))
    assert abs(found.seconds - SPEECH.seconds) < 0.45


@pytest.mark.parametrize("num_samples", [0, 1, 100, 48_000])
def test_silence_alone_is_as_it_was(num_samples: int) -> None:
    assert without_silence(Recording(torch.zeros(num_samples), 24_000))[1] == NOT_TRIMMED


def test_it_is_told_where_something_was_left_out() -> None:
    assert str(Trimmed(1.2, 0.0)) == "silence was left out: 1.20 s at the start"
    assert str(Trimmed(1.2, 3.456)) == "silence was left out: 1.20 s at the start and 3.46 s at the end"
    assert str(NOT_TRIMMED) == ""


@pytest.mark.parametrize(("front_s", "behind_s"), [(1.4, 1.4), (12.0, 6.0)])
def test_a_voice_is_that_of_the_speech_alone(front_s: float, behind_s: float) -> None:
    """To a frame and a token here and there, as the frames begin elsewhere."""
    enroller = load_enroller(TINY_MODEL_DIR, load_model_config(TINY_MODEL_DIR))
    content = file_of(between(SPEECH, front_s, behind_s).samples.numpy(), subtype="FLOAT")
    plain = enroller.enrol("v", file_of(SPEECH.samples.numpy(), subtype="FLOAT"))
    voice = enroller.enrol("v", content)
    assert abs(voice.seconds - plain.seconds) < 0.45
    assert voice.info("en").remark == str(voice.trimmed)
    assert " s at the start and " in str(voice.trimmed)
    assert plain.info("en").remark == ""


def test_noise_in_front_of_nothing_is_refused() -> None:
    enroller = load_enroller(TINY_MODEL_DIR, load_model_config(TINY_MODEL_DIR))
    content = file_of((0.1 * noise("pink", 72_000)).astype(np.float32), subtype="FLOAT")
    with pytest.raises(VoiceRefused, match="no speech"):
        enroller.enrol("v", content)
