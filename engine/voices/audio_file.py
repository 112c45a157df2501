"""The content of a sound file -> mono samples, by libsndfile: WAV of every width, FLAC, Ogg, MP3."""

import io
import struct
from dataclasses import dataclass

import soundfile
import torch

from voicegate.engine.figures import told_apart
from voicegate.engine.interface import VoiceRefused
from voicegate.engine.voices.sound_files import WANTED, check_is_sound_file

# Before anything is decoded: a small FLAC can hold hours of silence in eight channels at 655 kHz. All are beyond
# what a voice takes (checks.py) and what recorders make.
_MAX_SECONDS = 60
_MAX_RATE_HZ = 192_000
_MAX_CHANNELS = 8
# Decoded at a time, so that only the average of the channels is ever there as a whole.
_BLOCK_SAMPLES = 1 << 16
_UNKNOWN_LENGTH = 2**63 - 1  # libsndfile's SF_COUNT_MAX
# Of which it is known how one is told that was cut short; libsndfile reads others, as far as there is something.
_FORMATS = ("WAV", "WAVEX", "FLAC", "OGG", "MP3")
# By how its file begins: of either byte order.
_RIFF_CHUNKS = {b"RIFF": struct.Struct("<4sI"), b"RIFX": struct.Struct(">4sI")}
# A WAV's header may say this of sound whose length its writer did not know: 0, or about as much as it can say.
_UNKNOWN_BYTES = 0x7FFF0000
# Missing bytes at the end, which writers round and pad, but for FLAC's.
_LACKING_BYTES = 1024
_LACKING_SECONDS = 0.1
# A page of Ogg begins with these, has its flags behind a version, and behind its head a table of sizes (RFC 3533).
_OGG_PAGE, _OGG_HEAD_BYTES, _OGG_FLAGS_AT, _OGG_LAST = b"OggS", 27, 5, 0x04
# Where an MP3's first frame has one of these it says how many follow; else its length is a guess by its first bytes.
_MP3_TAGS, _MP3_TAG_WITHIN = (b"Xing", b"Info"), 8192


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
    check_is_sound_file(content)
    _check_wav_is_whole(content)
    _check_ogg_is_whole(content)
    try:
        with _ReadOnce(io.BytesIO(content)) as file:
            _check_format(file)
            _check_size(file)
            mono = []
            num_samples = 0
            while len(block := file.read(_BLOCK_SAMPLES, dtype="float32", always_2d=True)):
                num_samples += len(block)
                _check_length(num_samples, file.samplerate)
                mono.append(torch.from_numpy(block).mean(1))
            rate_hz: int = file.samplerate
            if file.format != "MP3" or any(tag in content[:_MP3_TAG_WITHIN] for tag in _MP3_TAGS):
                _check_all_came(num_samples, file)
    except soundfile.LibsndfileError as error:
        reason = error.error_string.strip().rstrip(".") or "unknown format"
        raise VoiceRefused(f"the recording is no sound file that can be read ({reason}): {WANTED}") from error
    return Recording(torch.cat(mono) if mono else torch.zeros(0), rate_hz)


def _check_wav_is_whole(content: bytes) -> None:
    """libsndfile takes what there is of one that was cut short. Raises VoiceRefused."""
    chunk = _RIFF_CHUNKS.get(content[:4])
    if chunk is None or content[8:12] != b"WAVE":
        return
    at = 12
    while at + chunk.size <= len(content):
        name, num_bytes = chunk.unpack_from(content, at)
        at += chunk.size
        if name == b"data":
            num_there = len(content) - at
            if num_bytes < _UNKNOWN_BYTES and num_there + _LACKING_BYTES < num_bytes:
                raise VoiceRefused(
                    f"the recording is cut short: of {num_bytes} bytes of sound there are {num_there}; send it whole"
                )
            return
        at += num_bytes + num_bytes % 2  # chunks begin at even places


def _check_ogg_is_whole(content: bytes) -> None:
    """As of a WAV: its last page says that it is the last. Raises VoiceRefused."""
    if not content.startswith(_OGG_PAGE):
        return
    at, is_ended = 0, False
    while content.startswith(_OGG_PAGE, at) and (head := content[at : at + _OGG_HEAD_BYTES])[_OGG_HEAD_BYTES - 1 :]:
        sizes = content[at + len(head) : at + len(head) + head[-1]]
        at += len(head) + head[-1] + sum(sizes)
        is_ended = at <= len(content) and bool(head[_OGG_FLAGS_AT] & _OGG_LAST)
    if not is_ended:
        raise VoiceRefused("the recording is cut short: its last page of Ogg is missing; send it whole")


def _check_all_came(num_samples: int, file: soundfile.SoundFile) -> None:
    """As many as its header tells of, where it does. Raises VoiceRefused."""
    lacking = 0.0 if file.format == "FLAC" else _LACKING_SECONDS * file.samplerate
    if file.frames != _UNKNOWN_LENGTH and num_samples + lacking < file.frames:
        there, said = told_apart(num_samples / file.samplerate, file.frames / file.samplerate, decimals=2)
        raise VoiceRefused(
            f"the recording is cut short: it says that it is {said} s long, and {there} s are there; send it whole"
        )


def _check_format(file: soundfile.SoundFile) -> None:
    """Raises VoiceRefused."""
    if file.format not in _FORMATS:
        raise VoiceRefused(f"the recording is {file.format}, which is not taken: {WANTED}")


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
