"""Whether a recording and its transcript make a voice. Every refusal names what was measured and the limit."""

from typing import Final

import torch

from voicegate.engine.checks import MODEL_MARKS
from voicegate.engine.figures import told_apart
from voicegate.engine.interface import VoiceRefused
from voicegate.engine.voices.audio_file import Recording
from voicegate.engine.voices.loudness import FRAMES_A_SECOND, loudness_of

# In dB, see `variation_db`. Sounds that stay the same have up to 1.3 (brown noise, vibrato, beeps); people's speech
# has 3 to 6, and with as much noise in it 2.5 (tests/unit/engine/voices/test_steadiness.py).
MIN_VARIATION_DB: Final = 1.8
_HEARD_DB: Final = 20.0  # below the loud parts: pauses are not compared
_FLOOR: Final = 10**-2.5  # of a band's share: what is beneath it nobody hears beside the others


def variation_db(recording: Recording) -> float:
    """How much the shares of eight bands in the sound deviate from what they are on average, by level.

    It does not depend on loudness, nor on how that changes: a tone that comes and goes stays a tone.
    """
    loudness = loudness_of(recording)
    is_heard = loudness.levels_db > loudness.loud_db - _HEARD_DB
    bands = loudness.bands[is_heard]
    if len(bands) < 2:
        return 0.0
    shares_db = 10 * (bands / bands.sum(1, keepdim=True).clamp(min=1e-20) + _FLOOR).log10()
    return float(shares_db.std(0, correction=0).mean())


MIN_SECONDS, MAX_SECONDS = 1.0, 30.0  # upstream's tokenizer takes no more
# Below it a voice resembles its speaker less; nothing fails.
RECOMMENDED_MIN_SECONDS = 3.0
# Upstream's own floor: what lies above 8 kHz is not heard, what lies below is.
_MIN_RATE_HZ = 16_000
# Speech peaks at -20 to -3 dBFS; of what is quieter than this, 16 bits leave the model more noise than speech.
_SPEECH_DBFS = -60.0
_MIN_SPEECH_SECONDS = 0.5
# A recording that touches full scale here and there is fine; an overdriven one lies there for whole half waves.
_CLIP_LEVEL, _MAX_CLIPPED_SHARE = 0.999, 0.005
# Readers say 8 to 20 letters a second, 4 to 6 Chinese characters: beyond these it is another recording's transcript.
# One that is far too short makes a voice that says nothing: the LLM takes the text for said already.
_MIN_LETTERS_PER_SECOND, _MAX_LETTERS_PER_SECOND = 1, 40
# Within the LLM's 512 positions for text, a transcript of 30 s must leave most to the text.
MAX_TRANSCRIPT_CHARS = 600
_MAX_DESCRIPTION_CHARS = 200


def check_texts(transcript: str, description: str) -> None:
    """Raises VoiceRefused."""
    if len(transcript) > MAX_TRANSCRIPT_CHARS:
        raise VoiceRefused(
            f"the transcript has {len(transcript)} characters; at most {MAX_TRANSCRIPT_CHARS}: use a shorter recording"
        )
    if any(mark in transcript for mark in MODEL_MARKS):
        raise VoiceRefused(f"the transcript holds {' or '.join(MODEL_MARKS)}, the model's own marks: leave them out")
    if len(description) > _MAX_DESCRIPTION_CHARS:
        raise VoiceRefused(f"the description has {len(description)} characters; at most {_MAX_DESCRIPTION_CHARS}")


def check_sound(recording: Recording) -> None:
    """Look at the whole recording. Raises VoiceRefused."""
    if recording.rate_hz < _MIN_RATE_HZ:
        raise VoiceRefused(
            f"the recording has {recording.rate_hz} samples a second; at least {_MIN_RATE_HZ}, and converting "
            "it does not bring back what is missing"
        )
    if not recording.samples.isfinite().all():
        raise VoiceRefused("the recording holds values that are not numbers (NaN or infinity): export it again")


def check_speech(recording: Recording, transcript: str = "") -> None:
    """Look at a recording without the silence around it. Raises VoiceRefused."""
    seconds = recording.seconds
    if seconds < MIN_SECONDS or seconds > MAX_SECONDS:
        told, _ = told_apart(seconds, MIN_SECONDS if seconds < MIN_SECONDS else MAX_SECONDS, decimals=2)
        raise VoiceRefused(
            f"the recording is {told} s long without the silence around it; it must be {MIN_SECONDS:.0f} to "
            f"{MAX_SECONDS:.0f} s, best 3 to 10"
        )
    _check_clipping(recording)
    _check_loudness(recording)
    if (variation := variation_db(recording)) < MIN_VARIATION_DB:
        told, limit = told_apart(variation, MIN_VARIATION_DB, decimals=1)
        raise VoiceRefused(
            "the recording is no speech: its sound stays the same, as a tone, noise or hum does (its spectrum varies "
            f"by {told} dB, and that of speech by {limit} or more)"
        )
    letters = sum(char.isalnum() for char in transcript)
    if transcript and not _MIN_LETTERS_PER_SECOND * seconds <= letters <= _MAX_LETTERS_PER_SECOND * seconds:
        raise VoiceRefused(
            f"the transcript has {letters} letters for {seconds:.1f} s of sound, too many words for that time: it "
            "must be what the recording says, word for word"
        )


def _check_clipping(recording: Recording) -> None:
    clipped = float((recording.samples.abs() >= _CLIP_LEVEL).float().mean())
    if clipped > _MAX_CLIPPED_SHARE:
        share, limit = told_apart(100 * clipped, 100 * _MAX_CLIPPED_SHARE, decimals=1)
        raise VoiceRefused(
            f"the recording is clipped: {share}% of it lies at full scale, at most {limit}%; record it again at a "
            "lower level"
        )


def _check_loudness(recording: Recording) -> None:
    levels = _levels_dbfs(recording)
    loud_seconds = float((levels > _SPEECH_DBFS).sum()) / FRAMES_A_SECOND
    if loud_seconds < _MIN_SPEECH_SECONDS:
        raise VoiceRefused(
            f"the recording is silent or too quiet: {loud_seconds:.2f} s of it are louder than "
            f"{_SPEECH_DBFS:.0f} dBFS, at least {_MIN_SPEECH_SECONDS} s must be (its loudest 20 ms have "
            f"{float(levels.max()):.0f} dBFS)"
        )


def _levels_dbfs(recording: Recording) -> torch.Tensor:
    """[frames of 20 ms] RMS level without the offset that cheap converters add."""
    size = recording.rate_hz // FRAMES_A_SECOND
    frames = recording.samples[: len(recording.samples) // size * size].reshape(-1, size)
    power = (frames - recording.samples.mean()).square().mean(1)
    return 10 * power.clamp(min=1e-12).log10()
