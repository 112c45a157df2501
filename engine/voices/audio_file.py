"""The content of a sound file -> mono samples, by libsndfile: WAV of every width, FLAC, Ogg, MP3."""

import io
from dataclasses import dataclass

import soundfile
import torch

from voicegate.engine.interface import VoiceRefused

# Before anything is decoded: a small FLAC can hold hours of silence in eight channels at 655 kHz. All are beyond
# what a voice takes (checks.py) and what recorders make.
_MAX_SECONDS = 60
_MAX_RATE_HZ = 192_000
_MAX_CHANNELS = 8
# Decoded at a time, so that only the average of the channels is ever there as a whole.
_BLOCK_SAMPLES = 1 << 16


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
            _check_size(file)
            blocks = file.blocks(_BLOCK_SAMPLES, dtype="float32", always_2d=True)
            mono = [torch.from_numpy(block).mean(1) for block in blocks]
            rate_hz: int = file.samplerate
    except soundfile.LibsndfileError as error:
        reason = error.error_string.strip().rstrip(".") or "unknown format"
        raise VoiceRefused(
            f"the recording is no sound file that can be read ({reason}): make it WAV, FLAC, Ogg or MP3"
        ) from error
    return Recording(torch.cat(mono) if mono else torch.zeros(0), rate_hz)


def _check_size(file: soundfile.SoundFile) -> None:
    """By its header. Raises VoiceRefused."""
    if file.channels > _MAX_CHANNELS:
        raise VoiceRefused(f"the recording has {file.channels} channels; at most {_MAX_CHANNELS}, and one is enough")
    if file.samplerate > _MAX_RATE_HZ:
        raise VoiceRefused(f"the recording has {file.samplerate} samples a second; at most {_MAX_RATE_HZ}")
    if file.frames > file.samplerate * _MAX_SECONDS:
        seconds = file.frames / file.samplerate
        raise VoiceRefused(f"the recording is {seconds:.0f} s long; cut 3 to 10 s of clear speech out of it")
