"""The content of a sound file -> mono samples, by libsndfile: WAV of every width, FLAC, Ogg, MP3."""

import io
from dataclasses import dataclass

import soundfile
import torch

from voicegate.engine.interface import VoiceRefused

# Before anything is decoded: a small FLAC can hold hours of silence.
_MAX_SECONDS_DECODED = 600


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    samples: torch.Tensor  # [n] float32; in [-1, 1] unless the file holds floats beyond
    rate_hz: int

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate_hz


def decode_recording(content: bytes) -> Recording:
    """Channels are averaged, as upstream does. Raises VoiceRefused for what is no sound file."""
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            if file.frames > file.samplerate * _MAX_SECONDS_DECODED:
                seconds = file.frames / file.samplerate
                raise VoiceRefused(f"the recording is {seconds:.0f} s long; cut 3 to 10 s of clear speech out of it")
            samples, rate_hz = file.read(dtype="float32", always_2d=True), file.samplerate
    except soundfile.LibsndfileError as error:
        reason = error.error_string.strip().rstrip(".") or "unknown format"
        raise VoiceRefused(
            f"the recording is no sound file that can be read ({reason}): make it WAV, FLAC, Ogg or MP3"
        ) from error
    return Recording(torch.from_numpy(samples).mean(1), rate_hz)
