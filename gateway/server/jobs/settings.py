"""Limits of jobs, and why one is not taken. Plain data."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class JobSettings:
    folder: Path
    queue: str | None  # address of a Redis that several gateways share
    queue_password: str | None
    max_jobs: int  # that have not ended
    per_key: int
    text_bytes: int
    keep_s: float
    spare_bytes: int  # of the disk, which jobs leave free
    webhooks: tuple[str, ...]  # addresses below which those of jobs may be
    webhook_secret: bytes

    def check_room(self, *, num_of_key: int, num_in_all: int) -> None:
        """For one job more. Raises JobsFull."""
        if num_of_key >= self.per_key:
            raise JobsFull(f"{self.per_key} of your jobs have not ended, which is the limit", is_of_key=True)
        if num_in_all >= self.max_jobs:
            raise JobsFull(f"{self.max_jobs} jobs have not ended, which is the limit of this server", is_of_key=False)


class JobsFull(Exception):
    """`is_of_key`: others may still add jobs."""

    def __init__(self, message: str, *, is_of_key: bool) -> None:
        super().__init__(message)
        self.is_of_key = is_of_key


class NoSpace(Exception):
    """The disk takes no more; a message for clients."""


class QueueDown(Exception):
    """The ledger does not answer, now; a message for clients. `is_disk_full`: and that is why."""

    def __init__(self, message: str, *, is_disk_full: bool = False) -> None:
        super().__init__(message)
        self.is_disk_full = is_disk_full
