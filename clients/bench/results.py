"""Results of a run: rows and environment as JSON, records of every listener as JSON lines. Written as they come."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from voicegate.clients.bench.plan import Record

ROWS_FILE: Final = "bench.json"
EVENTS_FILE: Final = "events.jsonl"


class Results:
    """In a directory of its own; a run that is interrupted leaves what it had."""

    def __init__(self, directory: Path, environment: Mapping[str, Any]) -> None:
        """Until something has been measured, what an earlier run left there stays. Raises OSError."""
        self.report: dict[str, Any] = {"environment": dict(environment), "scenarios": {}}
        self.records: dict[str, Sequence[Record]] = {}  # times from the scenario's start
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        (directory / EVENTS_FILE).open("ab").close()

    def add_records(self, scenario: str, start_s: float, records: Sequence[Record]) -> None:
        moved = [from_start(record, start_s) for record in records]
        is_first = not self.records
        self.records[scenario] = moved
        with (self._directory / EVENTS_FILE).open("wb" if is_first else "ab") as file:
            for record in moved:
                file.write(msgspec.json.encode({"scenario": scenario, **msgspec.structs.asdict(record)}) + b"\n")

    def add_row(self, scenario: str, row: Mapping[str, Any]) -> None:
        self.report["scenarios"][scenario] = row
        self.save()

    def save(self) -> None:
        (self._directory / ROWS_FILE).write_text(json.dumps(self.report, indent=1) + "\n")


def from_start(record: Record, start_s: float) -> Record:
    """With times from its scenario's start, to 10 us."""

    def moved(at_s: float) -> float:
        return round(at_s - start_s, 5)

    return msgspec.structs.replace(
        record,
        due_s=moved(record.due_s),
        sent_s=moved(record.sent_s),
        ended_s=moved(record.ended_s),
        arrivals=tuple((moved(at_s), num_48k) for at_s, num_48k in record.arrivals),
        cancelled_s=None if record.cancelled_s is None else moved(record.cancelled_s),
        stopped_s=None if record.stopped_s is None else moved(record.stopped_s),
        last_audio_s=None if record.last_audio_s is None else moved(record.last_audio_s),
        lag_s=round(record.lag_s, 5),
    )
