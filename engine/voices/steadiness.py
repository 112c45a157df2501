"""Whether a sound changes as speech does. A tone, noise and hum do not; a melody does, and is taken for speech."""

from typing import Final

from voicegate.engine.voices.audio_file import Recording
from voicegate.engine.voices.loudness import loudness_of

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
