"""Jobs on disk: a table of jobs and one of parts in SQLite, and the audio in files beside it.

A part's file is written, made safe and named before the table says that it is done. So a kill at any moment loses
nothing that is done, and leaves nothing half done. Blocking: for one thread. Raises OSError and sqlite3.Error.
"""

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import BinaryIO, Final

from voicegate.gateway.server.jobs.cutting import Part

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, request BLOB NOT NULL, state TEXT NOT NULL, error TEXT,
    created_s REAL NOT NULL, ended_s REAL, pre_skip INTEGER NOT NULL,
    inputs INTEGER NOT NULL, parts INTEGER NOT NULL, parts_done INTEGER NOT NULL DEFAULT 0,
    characters INTEGER NOT NULL, characters_done INTEGER NOT NULL DEFAULT 0,
    audio_ms INTEGER NOT NULL DEFAULT 0, truncated INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS parts (
    job TEXT NOT NULL REFERENCES jobs(id) ON DELETE CASCADE, number INTEGER NOT NULL, input INTEGER NOT NULL,
    text TEXT NOT NULL, end_pts INTEGER, PRIMARY KEY (job, number)
);
"""
_WHOLE: Final = "whole"
_LENGTH_BYTES: Final = 2  # of a packet, before it


class State(Enum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class JobRow:
    """Fields are the columns."""

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


@dataclass(frozen=True, slots=True)
class PartAudio:
    packets: Sequence[bytes]
    end_pts_48k: int
    audio_ms: int
    is_truncated: bool = False


@dataclass(frozen=True, slots=True)
class PartFile:
    path: Path
    end_pts_48k: int

    def packets(self) -> list[bytes]:
        data, at, packets = self.path.read_bytes(), 0, []
        while at < len(data):
            start = at + _LENGTH_BYTES
            at = start + int.from_bytes(data[at:start], "big")
            packets.append(data[start:at])
        return packets


class JobStore:
    def __init__(self, folder: Path) -> None:
        """Raises OSError, BlockingIOError where another process has the folder."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = (folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise
        self._db = sqlite3.connect(folder / "jobs.sqlite", check_same_thread=False, isolation_level=None)
        self._db.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; {_SCHEMA}")
        self._sweep()

    def close(self) -> None:
        self._db.close()
        self._lock.close()

    @property
    def free_bytes(self) -> int:
        return shutil.disk_usage(self._folder).free

    def _sweep(self) -> None:
        """Files of which the tables do not know: a kill came between."""
        known = {name for (name,) in self._db.execute("SELECT id FROM jobs")}
        for folder in self._folder.iterdir():
            if folder.is_dir() and folder.name not in known:
                shutil.rmtree(folder)

    # --- jobs ---------------------------------------------------------------------------------------------

    def add(self, job: JobRow, parts: Sequence[Part]) -> None:
        (self._folder / job.id).mkdir()
        with self._db:
            self._db.execute("BEGIN")
            self._db.execute(
                "INSERT INTO jobs (id, owner, request, state, created_s, pre_skip, inputs, parts, characters) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(job.id, job.owner, job.request, job.state.value, job.created_s, job.pre_skip),
                    *(job.inputs, job.parts, job.characters),
                ),
            )
            rows = ((job.id, number, part.input, part.text) for number, part in enumerate(parts))
            self._db.executemany("INSERT INTO parts (job, number, input, text) VALUES (?, ?, ?, ?)", rows)

    def get(self, job_id: str) -> JobRow | None:
        return next(self._rows("WHERE id = ?", job_id), None)

    def of_owner(self, owner: str, limit: int) -> list[JobRow]:
        """The newest first."""
        return list(self._rows("WHERE owner = ? ORDER BY created_s DESC LIMIT ?", owner, limit))

    def unended(self) -> list[JobRow]:
        return list(self._rows("WHERE ended_s IS NULL ORDER BY created_s"))

    def _rows(self, where: str, *values: object) -> Iterator[JobRow]:
        columns = ", ".join(JobRow.__dataclass_fields__)
        for row in self._db.execute(f"SELECT {columns} FROM jobs {where}", values):
            named = dict(zip(JobRow.__dataclass_fields__, row, strict=True))
            yield JobRow(**{**named, "state": State(named["state"])})

    def begin(self, job_id: str) -> None:
        self._db.execute("UPDATE jobs SET state = ? WHERE id = ?", (State.RUNNING.value, job_id))

    def end(self, job_id: str, state: State, error: str | None, now_s: float) -> None:
        """Once: a later end changes nothing."""
        values = (state.value, error, now_s, job_id)
        self._db.execute("UPDATE jobs SET state = ?, error = ?, ended_s = ? WHERE id = ? AND ended_s IS NULL", values)

    def remove(self, job_id: str) -> None:
        self._db.execute("DELETE FROM jobs WHERE id = ?", (job_id,))
        shutil.rmtree(self._folder / job_id, ignore_errors=True)

    def expire(self, ended_before_s: float) -> int:
        """How many."""
        found = self._db.execute("SELECT id FROM jobs WHERE ended_s < ?", (ended_before_s,)).fetchall()
        for (job_id,) in found:
            self.remove(job_id)
        return len(found)

    # --- parts --------------------------------------------------------------------------------------------

    def open_parts(self, job_id: str) -> list[int]:
        """Their numbers, in order."""
        rows = self._db.execute("SELECT number FROM parts WHERE job = ? AND end_pts IS NULL ORDER BY number", (job_id,))
        return [number for (number,) in rows]

    def text_of(self, job_id: str, number: int) -> str:
        row = self._db.execute("SELECT text FROM parts WHERE job = ? AND number = ?", (job_id, number)).fetchone()
        return str(row[0]) if row else ""

    def finish_part(self, job_id: str, number: int, audio: PartAudio) -> bool:
        """False: the job has ended, or was removed, or the part is done already."""
        row = self._db.execute(
            "SELECT length(text) FROM parts JOIN jobs ON id = job "
            "WHERE job = ? AND number = ? AND end_pts IS NULL AND ended_s IS NULL",
            (job_id, number),
        ).fetchone()
        if row is None:
            return False
        framed = b"".join(len(packet).to_bytes(_LENGTH_BYTES, "big") + packet for packet in audio.packets)
        write_safely(self._folder / job_id / str(number), [framed])
        with self._db:
            self._db.execute("BEGIN")
            self._db.execute(
                "UPDATE parts SET end_pts = ? WHERE job = ? AND number = ?", (audio.end_pts_48k, job_id, number)
            )
            self._db.execute(
                "UPDATE jobs SET parts_done = parts_done + 1, characters_done = characters_done + ?, "
                "audio_ms = audio_ms + ?, truncated = truncated + ? WHERE id = ?",
                (row[0], audio.audio_ms, audio.is_truncated, job_id),
            )
        return True

    def files(self, job_id: str, *, part: int | None = None, of_input: int | None = None) -> list[PartFile] | None:
        """Files of all parts, of one, or of one input, in order. None: some are not done; empty: there are none."""
        rows = self._db.execute(
            "SELECT number, end_pts FROM parts WHERE job = :job AND (:part IS NULL OR number = :part) "
            "AND (:input IS NULL OR input = :input) ORDER BY number",
            {"job": job_id, "part": part, "input": of_input},
        ).fetchall()
        if any(end_pts is None for _, end_pts in rows):
            return None
        return [PartFile(self._folder / job_id / str(number), end_pts) for number, end_pts in rows]

    def whole(self, job_id: str) -> Path:
        return self._folder / job_id / _WHOLE


def write_safely(path: Path, content: Iterable[bytes]) -> None:
    """All of it, or nothing: a file of the name is whole, also after a power cut."""
    unfinished = path.with_suffix(".new")
    try:
        with unfinished.open("wb") as file:
            for data in content:
                file.write(data)
            _sync(file)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
