"""The seam of jobs' states: which jobs and parts there are, and who makes which. SQLite or Redis stands behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from voicegate.gateway.server.jobs.cutting import Part
from voicegate.gateway.server.jobs.files import PartAudio


class State(Enum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class JobRow:
    """Fields are SQLite's columns."""

    id: str
    owner: str  # a key's name
    request: bytes  # body without its text
    state: State
    created_s: float
    pre_skip: int  # of Opus, in 48 kHz samples
    inputs: int
    parts: int
    characters: int
    error: str | None = None
    ended_s: float | None = None
    parts_done: int = 0
    characters_done: int = 0
    audio_ms: int = 0
    truncated: int = 0  # parts that the engine's length limit cut off
    webhook: str | None = None  # address that is told of its end


@dataclass(frozen=True, slots=True)
class Claim:
    """A part that this gateway alone makes now."""

    job: JobRow
    number: int  # `job.parts`: all parts are done, and become one file
    attempt: int  # from 1 on; those that ended with their gateway count
    file: str  # name for its audio

    @property
    def is_whole(self) -> bool:
        return self.number == self.job.parts


@dataclass(frozen=True, slots=True)
class DonePart:
    file: str
    end_pts_48k: int


class Ledger(Protocol):
    """Blocking: for one thread. All but `check_room` and `add` raise `failures` alone."""

    failures: tuple[type[Exception], ...]

    def close(self) -> None: ...

    def check_room(self, owner: str) -> None:
        """Raises JobsFull."""

    def add(self, job: JobRow, parts: Sequence[Part]) -> None:
        """Raises JobsFull."""

    def get(self, job_id: str) -> JobRow | None: ...

    def of_owner(self, owner: str, limit: int) -> list[JobRow]:
        """The newest first."""

    def unended(self) -> list[JobRow]:
        """The oldest first. Progress need not be in them."""

    def end(self, job_id: str, state: State, error: str | None, now_s: float) -> bool:
        """Once: a later end changes nothing, and gets False."""

    def remove(self, job_id: str) -> None: ...

    def ended_before(self, ended_s: float) -> list[str]: ...

    def claim(self, jobs: Sequence[JobRow], num_parts: int) -> list[Claim]:
        """Parts of these jobs in turn, as far as others have not claimed them."""

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        """For each whether it is still to be made."""

    def release(self, claim: Claim, *, counts: bool) -> None:
        """It was not made. `counts`: as an attempt."""

    def text_of(self, claim: Claim) -> str | None:
        """None: it is done, or its job has ended."""

    def finish(self, claim: Claim, audio: PartAudio, num_characters: int) -> bool:
        """Whether it is done with this audio; it may be told again. False: with other audio, or its job has ended."""

    def parts(self, job_id: str, part: int | None, of_input: int | None) -> list[DonePart | None]:
        """All, one, or those of one input, in order; None for one that is not done."""

    def due_webhook(self, delays_s: Sequence[float]) -> tuple[JobRow, int] | None:
        """One that is to be sent now, and the attempt, from 1 on. It is due again after that attempt's delay.

        Nobody else gets it until then. After the last attempt it is due no more.
        """

    def note_webhook(self, job_id: str) -> None:
        """It was sent."""
