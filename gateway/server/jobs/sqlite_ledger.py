"""The ledger of a gateway that shares its jobs with no other: two tables in SQLite. Claims live as long as it does."""

import sqlite3
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from voicegate.gateway.server.jobs.cutting import Part
from voicegate.gateway.server.jobs.files import PartAudio
from voicegate.gateway.server.jobs.ledger import Claim, DonePart, JobRow, State
from voicegate.gateway.server.jobs.settings import JobSettings

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, request BLOB NOT NULL, state TEXT NOT NULL, error TEXT,
    created_s REAL NOT NULL, ended_s REAL, pre_skip INTEGER NOT NULL,
    inputs INTEGER NOT NULL, parts INTEGER NOT NULL, parts_done INTEGER NOT NULL DEFAULT 0,
    characters INTEGER NOT NULL, characters_done INTEGER NOT NULL DEFAULT 0,
    audio_ms INTEGER NOT NULL DEFAULT 0, truncated INTEGER NOT NULL DEFAULT 0,
    webhook TEXT, webhook_due_s REAL, webhook_attempts INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS parts (
    job TEXT NOT NULL REFERENCES jobs(id) ON DELETE CASCADE, number INTEGER NOT NULL, input INTEGER NOT NULL,
    text TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, end_pts INTEGER, PRIMARY KEY (job, number)
);
CREATE INDEX IF NOT EXISTS unended ON jobs (created_s) WHERE ended_s IS NULL;
CREATE INDEX IF NOT EXISTS ended ON jobs (ended_s);
CREATE INDEX IF NOT EXISTS owned ON jobs (owner, created_s);
CREATE INDEX IF NOT EXISTS due ON jobs (webhook_due_s);
"""


class SqliteLedger:
    def __init__(self, path: Path, settings: JobSettings) -> None:
        self.failures: tuple[type[Exception], ...] = (sqlite3.Error,)
        self._settings = settings
        self._claimed: set[tuple[str, int]] = set()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; {_SCHEMA}")

    def close(self) -> None:
        self._db.close()

    # --- jobs ---------------------------------------------------------------------------------------------

    def check_room(self, owner: str) -> None:
        query = "SELECT count(*) FILTER (WHERE owner = ?), count(*) FROM jobs WHERE ended_s IS NULL"
        num_of_key, num_in_all = self._db.execute(query, (owner,)).fetchone()
        self._settings.check_room(num_of_key=num_of_key, num_in_all=num_in_all)

    def add(self, job: JobRow, parts: Sequence[Part]) -> None:
        self.check_room(job.owner)
        with self._db:
            self._db.execute("BEGIN")
            self._db.execute(
                "INSERT INTO jobs (id, owner, request, state, created_s, pre_skip, inputs, parts, characters, "
                "webhook) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(job.id, job.owner, job.request, job.state.value, job.created_s, job.pre_skip),
                    *(job.inputs, job.parts, job.characters, job.webhook),
                ),
            )
            rows = ((job.id, number, part.input, part.text) for number, part in enumerate(parts))
            self._db.executemany("INSERT INTO parts (job, number, input, text) VALUES (?, ?, ?, ?)", rows)

    def get(self, job_id: str) -> JobRow | None:
        return next(self._rows("WHERE id = ?", job_id), None)

    def of_owner(self, owner: str, limit: int) -> list[JobRow]:
        return list(self._rows("WHERE owner = ? ORDER BY created_s DESC LIMIT ?", owner, limit))

    def unended(self) -> list[JobRow]:
        return list(self._rows("WHERE ended_s IS NULL ORDER BY created_s"))

    def _rows(self, where: str, *values: object) -> Iterator[JobRow]:
        columns = ", ".join(JobRow.__dataclass_fields__)
        for row in self._db.execute(f"SELECT {columns} FROM jobs {where}", values):
            named = dict(zip(JobRow.__dataclass_fields__, row, strict=True))
            yield JobRow(**{**named, "state": State(named["state"])})

    def end(self, job_id: str, state: State, error: str | None, now_s: float) -> bool:
        values = (state.value, error, now_s, now_s, job_id)
        query = (
            "UPDATE jobs SET state = ?, error = ?, ended_s = ?, webhook_due_s = iif(webhook IS NULL, NULL, ?) "
            "WHERE id = ? AND ended_s IS NULL"
        )
        self._claimed = {claim for claim in self._claimed if claim[0] != job_id}
        return self._db.execute(query, values).rowcount > 0

    def remove(self, job_id: str) -> None:
        self._db.execute("DELETE FROM jobs WHERE id = ?", (job_id,))

    def ended_before(self, ended_s: float) -> list[str]:
        return [job_id for (job_id,) in self._db.execute("SELECT id FROM jobs WHERE ended_s < ?", (ended_s,))]

    def due_webhook(self, delays_s: Sequence[float]) -> tuple[JobRow, int] | None:
        query = "SELECT id, webhook_attempts + 1 FROM jobs WHERE webhook_due_s <= ? ORDER BY webhook_due_s LIMIT 1"
        found = self._db.execute(query, (time.time(),)).fetchone()
        if found is None:
            return None
        job_id, attempt = found
        due_s = time.time() + delays_s[attempt - 1] if attempt < len(delays_s) else None
        query = "UPDATE jobs SET webhook_attempts = ?, webhook_due_s = ? WHERE id = ?"
        self._db.execute(query, (attempt, due_s, job_id))
        return next(self._rows("WHERE id = ?", job_id)), attempt

    def note_webhook(self, job_id: str) -> None:
        self._db.execute("UPDATE jobs SET webhook_due_s = NULL WHERE id = ?", (job_id,))

    # --- parts --------------------------------------------------------------------------------------------

    def claim(self, jobs: Sequence[JobRow], num_parts: int) -> list[Claim]:
        claims: list[Claim] = []
        claimed, waiting = set(self._claimed), deque(jobs)
        with self._db:
            self._db.execute("BEGIN")
            while waiting and len(claims) < num_parts:
                job = waiting.popleft()
                if (claim := self._claim_of(job, claimed)) is not None:
                    claims.append(claim)
                    waiting.append(job)
        self._claimed = claimed
        return claims

    def _claim_of(self, job: JobRow, claimed: set[tuple[str, int]]) -> Claim | None:
        """And the first of a job tells that it runs."""
        query = "UPDATE jobs SET state = ? WHERE id = ? AND ended_s IS NULL"
        if not self._db.execute(query, (State.RUNNING.value, job.id)).rowcount:
            return None
        query = "SELECT number, attempts FROM parts WHERE job = ? AND end_pts IS NULL ORDER BY number LIMIT ?"
        rows = self._db.execute(query, (job.id, len(claimed) + 1)).fetchall() or [(job.parts, 0)]
        number, attempts = next((row for row in rows if (job.id, row[0]) not in claimed), (None, 0))
        if number is None:
            return None
        claimed.add((job.id, number))
        self._db.execute("UPDATE parts SET attempts = attempts + 1 WHERE job = ? AND number = ?", (job.id, number))
        return Claim(job, number, attempts + 1, str(number))

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        unended = {job_id for (job_id,) in self._db.execute("SELECT id FROM jobs WHERE ended_s IS NULL")}
        return [claim.job.id in unended for claim in claims]

    def release(self, claim: Claim, *, counts: bool) -> None:
        self._claimed.discard((claim.job.id, claim.number))
        if not counts:
            values = (claim.job.id, claim.number)
            self._db.execute("UPDATE parts SET attempts = attempts - 1 WHERE job = ? AND number = ?", values)

    def text_of(self, claim: Claim) -> str | None:
        query = "SELECT text FROM parts WHERE job = ? AND number = ? AND end_pts IS NULL"
        row = self._db.execute(query, (claim.job.id, claim.number)).fetchone()
        return None if row is None else str(row[0])

    def finish(self, claim: Claim, audio: PartAudio, num_characters: int) -> bool:
        with self._db:
            self._db.execute("BEGIN")
            is_new = self._db.execute(
                "UPDATE parts SET end_pts = ? WHERE job = ? AND number = ? AND end_pts IS NULL "
                "AND EXISTS (SELECT 1 FROM jobs WHERE id = job AND ended_s IS NULL)",
                (audio.end_pts_48k, claim.job.id, claim.number),
            ).rowcount
            self._db.execute(
                "UPDATE jobs SET parts_done = parts_done + ?1, characters_done = characters_done + ?1 * ?2, "
                "audio_ms = audio_ms + ?1 * ?3, truncated = truncated + ?1 * ?4 WHERE id = ?5",
                (is_new, num_characters, audio.audio_ms, audio.is_truncated, claim.job.id),
            )
        self._claimed.discard((claim.job.id, claim.number))
        return is_new > 0 or self.parts(claim.job.id, claim.number, None) == [DonePart(claim.file, audio.end_pts_48k)]

    def parts(self, job_id: str, part: int | None, of_input: int | None) -> list[DonePart | None]:
        rows = self._db.execute(
            "SELECT number, end_pts FROM parts WHERE job = :job AND (:part IS NULL OR number = :part) "
            "AND (:input IS NULL OR input = :input) ORDER BY number",
            {"job": job_id, "part": part, "input": of_input},
        )
        return [None if end_pts is None else DonePart(str(number), end_pts) for number, end_pts in rows]
