"""Files that a user names: regular ones of a sensible size."""

import os
from pathlib import Path

import pytest

from voicegate.engine.voices.sound_files import read_regular_file


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular_file(path, 5) == b"12345"
    with pytest.raises(OSError, match=r"at most 0\.0"):
        read_regular_file(path, 4)


def test_what_never_ends_is_not_begun(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="no regular file"):
            read_regular_file(path, 100)


def test_a_file_without_a_size_has_one_here() -> None:
    with pytest.raises(OSError, match="at most"):
        read_regular_file(Path("/proc/self/maps"), 10)
