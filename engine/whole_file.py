"""A file that appears whole or not at all, also where the machine stops. No torch."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

# Suffix of files that are not whole yet. A process that is killed leaves one behind it.
UNFINISHED_SUFFIX: Final = ".part"


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Writes a file that takes the place of `path` at the end, once it is on the disk. Raises OSError."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}{UNFINISHED_SUFFIX}")
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Raises OSError."""
    with whole_file(path) as file:
        file.write(content)
