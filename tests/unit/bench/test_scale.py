"""bench.scale: its requests, and its reading of the answers."""

from pathlib import Path
from typing import Any

import pytest

from voicegate.bench import scale

GOOD: dict[str, Any] = {
    "outcomes": {"refused": 0, "failed": 0, "cut_off": 0},
    "first_audio_ms": {"p95": 50.0},
    "c100": 1.0,
    "rtf": None,
}


def test_loads_are_in_proportion_and_the_largest_that_held_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(_model: Path, gpus: tuple[str, ...], num_streams: int, _flags: list[str]) -> dict[str, Any]:
        asked.append((gpus, num_streams))
        loaded = {**GOOD, "first_audio_ms": {"p95": 999.0}} if num_streams == 400 else GOOD
        return {"alone:20j": GOOD, f"mixed:{num_streams}": loaded if num_streams < 800 else None}

    monkeypatch.setattr(scale, "_run", run)
    rows = list(scale.measure(Path("m"), ("0", "1"), (200, 400), []))
    assert asked == [(("0",), 200), (("0", "1"), 400), (("0",), 400), (("0", "1"), 800)]
    assert [row["misses"] is None for row in rows] == [True, False, False, False]
    assert (scale.best(rows, 1), scale.best(rows, 2)) == (200, 0)


def test_the_server_is_asked_for_these_gpus() -> None:
    command = scale.command(
        Path("m"), ["0", "1"], ["mixed:600"], max_streams=600, flags=["--kv-dtype", "float8"], report=Path("r.json")
    )
    flags = ["--gpus", "0,1", "--max-sockets", "1200", "--kv-dtype", "float8"]
    assert command[command.index("--serve") + 1 :] == flags
    assert "mixed:600" in command
