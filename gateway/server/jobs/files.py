"""Audio of jobs on disk: a folder for each job, with a file for each part and one for the whole. Blocking."""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

_WHOLE: Final = "whole"
_LENGTH_BYTES: Final = 2  # of a packet, before it


@dataclass(frozen=True, slots=True)
class PartAudio:
    packets: Sequence[bytes]
    end_pts_48k: int
    audio_ms: int
    is_truncated: bool = False


@dataclass(frozen=True, slots=True)
class PartFile:
    path: Path
    end_pts_48k: int

    def packets(self) -> list[bytes]:
        data, at, packets = self.path.read_bytes(), 0, []
        while at < len(data):
            start = at + _LENGTH_BYTES
            at = start + int.from_bytes(data[at:start], "big")
            packets.append(data[start:at])
        return packets


class JobFiles:
    def __init__(self, folder: Path, *, is_shared: bool) -> None:
        """Raises OSError, BlockingIOError where another process has the folder, and not to share it."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = (folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise

    def close(self) -> None:
        self._lock.close()

    @property
    def free_bytes(self) -> int:
        return shutil.disk_usage(self._folder).free

    def remove(self, job_id: str) -> None:
        shutil.rmtree(self._folder / job_id, ignore_errors=True)

    def write(self, job_id: str, name: str, audio: PartAudio) -> None:
        (self._folder / job_id).mkdir(exist_ok=True)
        framed = b"".join(len(packet).to_bytes(_LENGTH_BYTES, "big") + packet for packet in audio.packets)
        write_safely(self._folder / job_id / name, [framed])

    def drop(self, job_id: str, name: str) -> None:
        """And a folder that was made for it alone."""
        (self._folder / job_id / name).unlink(missing_ok=True)
        with suppress(OSError):
            (self._folder / job_id).rmdir()

    def part(self, job_id: str, name: str, end_pts_48k: int) -> PartFile:
        return PartFile(self._folder / job_id / name, end_pts_48k)

    def whole(self, job_id: str) -> Path:
        return self._folder / job_id / _WHOLE


def write_safely(path: Path, content: Iterable[bytes]) -> None:
    """All of it, or nothing: a file of the name is whole, also after a power cut, and whoever else writes it."""
    unfinished = path.with_suffix(f".{secrets.token_hex(4)}.new")
    try:
        with unfinished.open("wb") as file:
            for data in content:
                file.write(data)
            _sync(file)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
