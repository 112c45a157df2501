"""The content of a file that a setting names: of a regular one, and of no more than is wanted of it."""

import errno
import os
import stat
from pathlib import Path


def read_setting_file(path: Path, max_bytes: int) -> bytes:
    """Raises OSError, also for a device or a pipe, which may never end, and for a file that is larger."""
    with open(path, "rb", opener=_open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        content = file.read(max_bytes + 1)  # it may have grown, and some files have no size
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it has over {max_bytes} bytes")
    return content


def _open_without_waiting(path: str, flags: int) -> int:
    """A pipe would wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)
