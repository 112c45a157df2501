"""What the bench of engine processes asks for, and what it makes of the answers."""

from pathlib import Path
from typing import Any

import pytest

from voicegate.bench.replicas import hop, placements, recipe, scale

pytestmark = pytest.mark.unit

GOOD: dict[str, Any] = {
    "outcomes": {"refused": 0, "failed": 0, "cut_off": 0},
    "first_audio_ms": {"p95": 50.0},
    "c100": 1.0,
    "rtf": None,
}

MEASURED = {
    **GOOD,
    "outcomes": {"refused": 1, "failed": 2, "cut_off": 0},
    "first_audio_ms": {"mean": 41.2, "p50": 40.0, "p90": 50.0, "p95": 60.0, "p99": None},
    "wall_per_audio": 0.01,
    "audio_s_per_s": 100.5,
}


def test_the_way_is_measured_here_and_behind_a_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hop, "_WARM_UP_S", 0.0)
    row = hop.measure(2, chunk_ms=20, seconds=0.3)
    for part in (row["here"], row["behind"]):
        assert part["calls_ms"]["num"] > 0
        assert part["packets_ms"]["num"] > 0
    assert row["added"]["calls_ms"]["p50"] > 0


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
    where = ["--gpus", "0,1"]
    command = scale.command(
        Path("m"), where, ["mixed:600"], max_streams=600, flags=["--kv-dtype", "float8"], report=Path("r.json")
    )
    flags = ["--gpus", "0,1", "--max-sockets", "1200", "--kv-dtype", "float8"]
    assert command[command.index("--serve") + 1 :] == flags
    assert "mixed:600" in command


def test_both_ways_have_the_same_gpus_and_the_same_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[tuple[str, ...], list[str], int]] = []

    def serve(_model: Path, where: tuple[str, ...], loads: list[str], *, max_streams: int, flags: list[str]) -> Any:
        asked.append((where, loads, max_streams))
        return {load: MEASURED if load != "mixed:600" else None for load in loads}

    monkeypatch.setattr(scale, "serve", serve)
    rows = list(placements.measure(Path("m"), ("0", "1", "2"), [1, 10], [200], []))
    loads = ["closed:3:whole", "closed:30:whole", "mixed:600"]
    assert asked == [
        (("--gpus", "0,1,2"), loads, 600),
        (("--llm-device", "cuda:0", "--token2wav-devices", "cuda:1,cuda:2"), loads, 600),
    ]
    assert [row["streams_per_gpu"] for row in rows] == [1, 10, 200] * 2
    told = [" ".join(placements.line(row).split()) for row in rows]
    assert told[0] == "replicas 0,1,2 1 closed:3:whole 41 40 50 60 - 0.01 100.5 3"
    assert told[5] == "LLM 0, token2wav 1,2 200 mixed:600 left out"
    assert len(placements.heading()) == len(placements.line(rows[0]))


def test_one_gpu_has_one_way() -> None:
    with pytest.raises(ValueError, match="two GPUs or more"):
        placements.placements(("0",))
    assert placements.placements(("cpu", "cpu"))[1].where == ("--llm-device", "cpu", "--token2wav-devices", "cpu")


def test_the_recipes_table_is_by_token2wav_gpus_and_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def serve(_model: Path, where: tuple[str, ...], loads: list[str], *, max_streams: int, flags: list[str]) -> Any:
        asked.append((where[-1], *loads, str(max_streams)))
        return {load: MEASURED if load != "closed:24:whole" else None for load in loads}

    monkeypatch.setattr(scale, "serve", serve)
    rows = list(recipe.measure(Path("m"), ("0", "1", "2"), [1, 6], []))
    assert asked == [
        ("cuda:1", "closed:2:whole", "closed:12:whole", "12"),
        ("0,1", "closed:2:whole", "closed:12:whole", "12"),
        ("cuda:1,cuda:2", "closed:4:whole", "closed:24:whole", "24"),
        ("0,1,2", "closed:4:whole", "closed:24:whole", "24"),
    ]
    heading, rule, *lines = recipe.table(rows)
    assert heading.startswith("| token2wav_num_gpu | concurrent_task_per_instance | concurrent_tasks_per_gpu | avg")
    assert {line.count("|") for line in (heading, rule, *lines)} == {12}
    figures = "41.20 | 40.00 | 50.00 | -"
    assert lines == [
        f"| 1 | 1 | 1.00 | {figures} | {figures} |",
        f"| 2 | 1 | 1.33 | {figures} | {figures} |",
        f"| 1 | 6 | 6.00 | {figures} | {figures} |",
        "| 2 | 6 | 8.00 | - | - | - | - | - | - | - | - |",
    ]
    with pytest.raises(ValueError, match="two GPUs or more"):
        list(recipe.measure(Path("m"), ("0",), [1], []))
