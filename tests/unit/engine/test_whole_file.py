"""A file that is written whole: the old one stays until then, and nothing else is left."""

import os
from pathlib import Path

import pytest

from voicegate.engine.whole_file import whole_file, write_whole


def test_it_takes_the_old_ones_place_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")
    with whole_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_what_fails_half_way_leaves_the_old_one_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")

    def fail() -> None:
        with whole_file(path) as file:
            file.write(b"ne")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
