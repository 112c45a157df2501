"""A file that appears whole or not at all, also where the machine stops. No torch."""

import os
import secrets
from pathlib import Path


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Through a file beside it, which takes its place once it is on the disk. Raises OSError."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
