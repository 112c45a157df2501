"""The content of a file that a user names: of a regular one, and of no more than is wanted of it."""

import errno
import stat
from pathlib import Path

from voicegate.engine.figures import told_apart


def read_regular_file(path: Path, max_bytes: int) -> bytes:
    """Raises OSError, also for a device or a pipe, which may never end, and for a file that is larger."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)  # it may have grown, and some files have no size
    if len(content) > max_bytes:
        size, most = told_apart(max(status.st_size, len(content)) / 1e6, max_bytes / 1e6, decimals=1)
        raise OSError(errno.EFBIG, f"it has {size} MB; at most {most}")
    return content
