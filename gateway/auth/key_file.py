"""The file of API keys: read whole, a line more, a line less. Raises ConfigError, which names the file."""

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Final

from voicegate.gateway.auth.keyring import Key, Keyring, key_line, parse_keys, parse_lines
from voicegate.gateway.config_fields import ConfigError
from voicegate.gateway.setting_files import read_setting_file

_MAX_BYTES: Final = 4 * 1024 * 1024
_HEAD: Final = "# API keys of voicegate, one a line: NAME sha256:HEX [sockets=N] [contexts=N] [utterances=N]\n"


def read_keys(path: Path) -> Keyring:
    return Keyring(parse_keys(_read(path), str(path)))


def add_key(path: Path, key: Key) -> None:
    """To the end of the file, which is made if it is not there; only its owner may read a new one."""
    with _alone(path):
        _add_key(path, key)


def _add_key(path: Path, key: Key) -> None:
    text = _read(path) if path.exists() else ""
    line = key_line(key)
    if Keyring(parse_keys(text, str(path))).named(key.name) is not None:
        raise ConfigError(f"{path} has a key {key.name} already; remove it first, or choose another name")
    start = _HEAD if not text else "" if text.endswith("\n") else "\n"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "ab", buffering=0) as file:
            _append(file, f"{start}{line}\n".encode())
    except OSError as error:
        raise _unusable(path, error) from error


def _append(file: FileIO, added: bytes) -> None:
    """All of it or nothing: half a line would keep a server from its next start."""
    num_bytes_before = os.fstat(file.fileno()).st_size
    try:
        while added:
            added = added[file.write(added) :]
        os.fsync(file.fileno())
    except OSError:
        file.truncate(num_bytes_before)
        raise


def remove_key(path: Path, name: str) -> None:
    """Everything else in the file stays as it is. Who reads it meanwhile reads the old file or the new one."""
    with _alone(path):
        _remove_key(path, name)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Among those who change it: a line that is added while the file is replaced would be lost.

    It is the directory that is locked: the file may be another one meanwhile, and one of its own would stay there.
    """
    try:
        directory = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _remove_key(path: Path, name: str) -> None:
    text = _read(path)
    gone = {num for num, key in parse_lines(text, str(path)) if key.name == name}
    if not gone:
        raise ConfigError(f"{path} has no key {name[:80]!r}; `voicegate keys list` shows those it has")
    kept = [line for num, line in enumerate(text.splitlines(keepends=True)) if num not in gone]
    try:
        _replace(path.resolve(), "".join(kept))  # a link stays one
    except OSError as error:
        raise _unusable(path, error) from error


def _replace(path: Path, text: str) -> None:
    """Mode and owner stay what they are: a root who removes a key must not take the file from its server.

    Not the engine's `whole_file`, which the gateway does not see, and whose files may be read by others at once.
    """
    before = path.stat()
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        changed = Path(file.name)
        try:
            file.write(text)
            file.flush()
            os.fchown(file.fileno(), before.st_uid, before.st_gid)
            changed.chmod(stat.S_IMODE(before.st_mode))
            os.fsync(file.fileno())
            changed.replace(path)
        finally:
            changed.unlink(missing_ok=True)


def _read(path: Path) -> str:
    try:
        return read_setting_file(path, _MAX_BYTES).decode()
    except OSError as error:
        raise _unusable(path, error) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8; is it a file of keys?") from error


def _unusable(path: Path, error: OSError) -> ConfigError:
    if isinstance(error, PermissionError):
        remedy = "run this as the file's owner"
    elif path.parent.is_dir():
        remedy = "`voicegate keys add` makes one"
    else:
        remedy = f"there is no directory {path.parent}"
    return ConfigError(f"the key file {path} cannot be used: {error.strerror or error}; {remedy}")
