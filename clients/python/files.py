"""A context's audio as a file: .wav, or .opus (Ogg) with the packets as they came."""

import errno
import io
import os
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from voicegate.clients.python.audio import Audio
from voicegate.clients.python.decode import decode_all
from voicegate.clients.python.errors import InvalidInput
from voicegate.protocol import messages as wire
from voicegate.protocol import ogg

SUFFIXES: Final = (".wav", ".opus", ".ogg")


def check_path(path: Path, codec: str = "opus") -> None:
    """Raises InvalidInput for a name that `write_audio` would not take, before any audio exists."""
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidInput(f"{path}: the name must end in one of {', '.join(SUFFIXES)}")
    if codec != "opus" and path.suffix.lower() != ".wav":
        raise InvalidInput(f"{path}: {codec} audio goes into a .wav file; ask for Opus to write .opus")
    if not path.parent.is_dir():
        raise InvalidInput(f"{path}: there is no directory {path.parent}")
    if path.is_dir():
        raise InvalidInput(f"{path} is a directory")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InvalidInput(f"{path} cannot be written: permission denied")


def write_audio(path: Path | str, opened: wire.Opened, audio: Sequence[Audio]) -> None:
    """By the name's ending. Raises InvalidInput, MissingDependency (a .wav of Opus is decoded), OSError."""
    path = Path(path)
    check_path(path, opened.format.codec)
    if path.suffix.lower() == ".wav":
        write_wav(path, decode_all(opened, audio), opened.sample_rate)
    else:
        _write(path, ogg_opus(opened, audio))


def ogg_opus(opened: wire.Opened, audio: Sequence[Audio]) -> bytes:
    packets = [packet for item in audio for packet in item.packets]
    has_end = bool(audio) and audio[-1].is_last and bool(packets)
    end_pts_48k = audio[-1].pts_48k + audio[-1].duration_48k if has_end else None
    return ogg.mux(packets, pre_skip_48k=opened.pre_skip, end_pts_48k=end_pts_48k)


def write_wav(path: Path, pcm: bytes, rate_hz: int) -> None:
    """16-bit mono. Raises OSError."""
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(pcm)
    _write(path, content.getvalue())


def _write(path: Path, content: bytes) -> None:
    """Half a file is none."""
    try:
        path.write_bytes(content)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            path.unlink(missing_ok=True)
        raise
