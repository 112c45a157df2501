"""The file of keys: made, added to, cut down, and refused where it is something else."""

import errno
import fcntl
import os
import resource
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from voicegate.gateway.auth.key_file import add_key, read_keys, remove_key
from voicegate.gateway.auth.keyring import Key, digest_of
from voicegate.gateway.config_fields import ConfigError


@contextmanager
def file_sizes_limited_to(num_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


ANN, BEN = Key("ann", digest_of("secret of ann")), Key("ben", digest_of("secret of ben"))


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    add_key(path, ANN)
    add_key(path, BEN)
    assert read_keys(path).keys == (ANN, BEN)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "secret" not in path.read_text()


def test_what_people_wrote_stays(tmp_path: Path) -> None:
    path, link = tmp_path / "keys", tmp_path / "link"
    path.write_text("# kiosks")  # no end of the line
    path.chmod(0o640)
    link.symlink_to(path)
    add_key(link, ANN)
    add_key(link, BEN)
    remove_key(link, "ann")
    assert path.read_text().startswith("# kiosks\nben sha256:")
    assert (link.is_symlink(), stat.S_IMODE(path.stat().st_mode)) == (True, 0o640)
    assert sorted(os.listdir(tmp_path)) == ["keys", "link"]
    assert read_keys(path).keys == (BEN,)


def test_a_disk_that_is_full_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys"
    add_key(path, ANN)

    def fail(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "chmod", fail)
    with pytest.raises(ConfigError, match="No space left"):
        remove_key(path, "ann")
    assert os.listdir(tmp_path) == ["keys"]
    assert read_keys(path).keys == (ANN,)


def test_a_disk_that_is_full_half_way_through_a_line_leaves_none_of_it(tmp_path: Path) -> None:
    """Half a line would keep a server from its next start."""
    path = tmp_path / "keys"
    add_key(path, ANN)
    before = path.read_bytes()
    with file_sizes_limited_to(len(before) + 20), pytest.raises(ConfigError, match="too large"):
        add_key(path, BEN)
    assert path.read_bytes() == before


def test_the_file_stays_its_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root who removes a key must not take the file from the server, which would go on with all the keys it has."""
    path = tmp_path / "keys"
    add_key(path, ANN)
    given: list[tuple[int, int]] = []
    owner, stat_of = (4711, 4712), Path.stat

    def owned_by_another(path: Path, **options: bool) -> os.stat_result:
        found = list(stat_of(path, **options))
        found[stat.ST_UID], found[stat.ST_GID] = owner
        return os.stat_result(found)

    monkeypatch.setattr(Path, "stat", owned_by_another)
    monkeypatch.setattr(os, "fchown", lambda _file, uid, gid: given.append((uid, gid)))
    remove_key(path, "ann")
    assert given == [owner]


def test_who_may_not_leave_the_file_its_owners_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys"
    add_key(path, ANN)

    def refuse(*_args: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refuse)
    with pytest.raises(ConfigError, match="Operation not permitted; run this as the file's owner"):
        remove_key(path, "ann")
    assert os.listdir(tmp_path) == ["keys"]
    assert read_keys(path).keys == (ANN,)


def test_a_name_is_taken_once_and_removed_once(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    add_key(path, ANN)
    with pytest.raises(ConfigError, match="has a key ann already"):
        add_key(path, Key("ann", BEN.digest))
    with pytest.raises(ConfigError, match="no key 'ben'"):
        remove_key(path, "ben")
    assert read_keys(path).keys == (ANN,)


def test_what_is_no_file_of_keys(tmp_path: Path) -> None:
    pipe, binary, bad = tmp_path / "pipe", tmp_path / "binary", tmp_path / "bad"
    os.mkfifo(pipe)
    binary.write_bytes(b"\xff")
    bad.write_text("ann\n")
    for path, message in (
        (pipe, "no regular file"),
        (tmp_path, r"no regular file|Is a directory"),
        (binary, "not UTF-8"),
        (bad, "line 1"),
        (tmp_path / "none", "No such file"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_keys(path)
    with pytest.raises(ConfigError, match="line 1"):
        add_key(bad, ANN)
    assert bad.read_text() == "ann\n"


def test_who_changes_the_file_waits_for_whoever_does(tmp_path: Path) -> None:
    """A line that is added while the file is replaced would be gone with the old one."""
    path = tmp_path / "keys"
    add_key(path, ANN)
    directory = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    adding = threading.Thread(target=add_key, args=(path, BEN))
    adding.start()
    adding.join(0.2)
    assert adding.is_alive()
    os.close(directory)
    adding.join()
    assert read_keys(path).keys == (ANN, BEN)
