"""Limits of jobs, and why one is not taken. Plain data."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class JobSettings:
    folder: Path
    max_jobs: int  # that have not ended
    per_key: int
    text_bytes: int
    keep_s: float
    spare_bytes: int  # of the disk, which jobs leave free


class JobsFull(Exception):
    """`is_of_key`: others may still add jobs."""

    def __init__(self, message: str, *, is_of_key: bool) -> None:
        super().__init__(message)
        self.is_of_key = is_of_key


class NoSpace(Exception):
    """The disk takes no more; a message for clients."""
