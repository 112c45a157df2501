"""The content of a sound file -> mono samples, by libsndfile: WAV of every width, FLAC, Ogg, MP3."""

import io
import struct
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
_UNKNOWN_LENGTH = 2**63 - 1  # libsndfile's SF_COUNT_MAX
_RIFF_CHUNK = struct.Struct("<4sI")
# What a WAV's header may say of sound whose length its writer did not know: 0, or about as much as it can say.
_UNKNOWN_BYTES = 0x7FFF0000
# Of the end, which writers round and pad.
_LACKING_BYTES = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    samples: torch.Tensor  # [n] float32; in [-1, 1] unless the file holds floats beyond
    rate_hz: int

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate_hz


class _ReadOnce(soundfile.SoundFile):  # type: ignore[misc]
    """From the front to the end: soundfile else seeks behind each read to where it is, which fails in a FLAC of unknown
    length (RFC 9639 section 8.2), as whoever streams one makes it."""

    def seekable(self) -> bool:
        return False


def decode_recording(content: bytes) -> Recording:
    """Channels are averaged, as upstream does. Raises VoiceRefused for what is no sound file, or a part of one."""
    _check_is_whole(content)
    try:
        with _ReadOnce(io.BytesIO(content)) as file:
            _check_size(file)
            mono = []
            num_samples = 0
            while len(block := file.read(_BLOCK_SAMPLES, dtype="float32", always_2d=True)):
                num_samples += len(block)
                _check_length(num_samples, file.samplerate)
                mono.append(torch.from_numpy(block).mean(1))
            rate_hz: int = file.samplerate
    except soundfile.LibsndfileError as error:
        reason = error.error_string.strip().rstrip(".") or "unknown format"
        raise VoiceRefused(
            f"the recording is no sound file that can be read ({reason}): make it WAV, FLAC, Ogg or MP3"
        ) from error
    return Recording(torch.cat(mono) if mono else torch.zeros(0), rate_hz)


def _check_is_whole(content: bytes) -> None:
    """Of a WAV: libsndfile takes what there is of one that was cut short. Raises VoiceRefused."""
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        return
    at = 12
    while at + _RIFF_CHUNK.size <= len(content):
        name, num_bytes = _RIFF_CHUNK.unpack_from(content, at)
        at += _RIFF_CHUNK.size
        if name == b"data":
            num_there = len(content) - at
            if num_bytes < _UNKNOWN_BYTES and num_there + _LACKING_BYTES < num_bytes:
                raise VoiceRefused(
                    f"the recording is cut short: of {num_bytes} bytes of sound there are {num_there}; send it whole"
                )
            return
        at += num_bytes + num_bytes % 2  # chunks begin at even places


def _check_size(file: soundfile.SoundFile) -> None:
    """By its header. Raises VoiceRefused."""
    if file.channels > _MAX_CHANNELS:
        raise VoiceRefused(f"the recording has {file.channels} channels; at most {_MAX_CHANNELS}, and one is enough")
    if file.samplerate > _MAX_RATE_HZ:
        raise VoiceRefused(f"the recording has {file.samplerate} samples a second; at most {_MAX_RATE_HZ}")
    if file.frames != _UNKNOWN_LENGTH:
        _check_length(file.frames, file.samplerate)


def _check_length(num_samples: int, rate_hz: int) -> None:
    if num_samples > rate_hz * _MAX_SECONDS:
        raise VoiceRefused(f"the recording is longer than {_MAX_SECONDS} s; cut 3 to 10 s of clear speech out of it")
