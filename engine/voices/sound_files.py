"""Files that voices are made of: which sound files are taken, told by their first bytes and names; transcripts.

No torch: asked before anything is loaded.
"""

import errno
import stat
from pathlib import Path
from typing import Final

from voicegate.engine.figures import told_apart
from voicegate.engine.interface import VoiceRefused

# How files' names end; lower case.
SUFFIXES: Final = (".wav", ".wave", ".flac", ".ogg", ".oga", ".opus", ".mp3")
MAX_BYTES: Final = 64 * 1024 * 1024  # of a file on this machine
_MAX_TEXT_BYTES: Final = 64 * 1024  # what a transcript may be long is told when it is read
WANTED: Final = "make it WAV, FLAC, Ogg or MP3"
_HEAD_BYTES: Final = 16
# By what is at which place. An ID3 tag stands before MP3, and before FLAC of some writers.
_TAKEN: Final = ((0, b"fLaC"), (0, b"OggS"), (0, b"ID3"))
_RIFF: Final = (b"RIFF", b"RIFX")
_OTHERS: Final = (
    (4, b"ftyp", "MP4 (M4A, AAC)"),
    (0, b"\x1a\x45\xdf\xa3", "WebM or Matroska"),
    (0, b"FORM", "AIFF"),
    (0, b"caff", "CAF"),
    (0, b"RF64", "RF64"),
    (0, b"riff", "W64"),
    (0, b"#!AMR", "AMR"),
    (0, b".snd", "AU"),
    (0, b"Creative Voic", "VOC"),
    (0, b"\x30\x26\xb2\x75", "WMA"),
    (0, b"ADIF", "AAC"),
)


class UnreadableFile(ValueError):
    """The message names the file and what is wrong."""


def read_recording(path: Path) -> bytes:
    """Raises UnreadableFile."""
    try:
        content = read_regular_file(path, MAX_BYTES)
        check_is_sound_file(content)
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}") from error
    except VoiceRefused as error:
        raise UnreadableFile(f"{path}: {error}") from error
    return content


def read_transcript(path: Path) -> str:
    """Raises UnreadableFile."""
    try:
        return read_regular_file(path, _MAX_TEXT_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{path} is not UTF-8 text") from error


def check_is_sound_file(content: bytes) -> None:
    """By its first bytes. Raises VoiceRefused."""
    head = content[:_HEAD_BYTES]
    if any(head.startswith(mark, at) for at, mark in _TAKEN) or _is_wave(head) or _is_mpeg(head):
        return
    if not content:
        raise VoiceRefused(f"the recording is no sound file that can be read (it is empty): {WANTED}")
    for at, mark, name in _OTHERS:
        if head.startswith(mark, at):
            raise VoiceRefused(f"the recording is {name}, which is not taken: {WANTED}")
    raise VoiceRefused(f"the recording is no sound file that can be read (it begins as none of these): {WANTED}")


def _is_wave(head: bytes) -> bool:
    return head[:4] in _RIFF and head[8:12] == b"WAVE"


def _is_mpeg(head: bytes) -> bool:
    """A frame of layer III or II (ISO 11172-3). With the other layers' bits it is AAC's head, or a mark of UTF-16."""
    if len(head) < 2 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return False
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    return version != 1 and layer in (1, 2)


def read_regular_file(path: Path, max_bytes: int) -> bytes:
    """Raises OSError, also for a device or a pipe, which may never end, and for a file that is larger."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)  # it may have grown, and some files have no size
    if len(content) > max_bytes:
        size, most = told_apart(max(status.st_size, len(content)) / 1e6, max_bytes / 1e6, decimals=1)
        raise OSError(errno.EFBIG, f"it has {size} MB; at most {most}")
    return content
