"""Files that settings name: what is no file, or too much of one, is told, and nobody waits for it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from voicegate.gateway.auth.key_file import read_keys
from voicegate.gateway.config_fields import ConfigError
from voicegate.gateway.pronunciations import read_dictionary
from voicegate.gateway.server.entrance.tls import Certificate
from voicegate.gateway.setting_files import read_setting_file

READERS = {
    "keys": read_keys,
    "pronunciations": read_dictionary,
    "certificate": lambda path: Certificate(path, path),
}


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1234")
    assert read_setting_file(path, 4) == b"1234"
    with pytest.raises(OSError, match="over 3 bytes"):
        read_setting_file(path, 3)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_pipe_is_not_waited_for(pipe: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(ConfigError, match=rf"{pipe}.*no regular file"):
        read(pipe)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_what_never_ends_is_not_read(read: Callable[[Path], object]) -> None:
    with pytest.raises(ConfigError, match=r"/dev/zero.*no regular file"):
        read(Path("/dev/zero"))


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_what_is_not_there_and_what_is_a_directory(tmp_path: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read(tmp_path / "none")
    with pytest.raises(ConfigError, match="Is a directory"):
        read(tmp_path)
