"""Numbers of hand-made outcomes; targets; ratios."""

from dataclasses import replace
from typing import Any

import pytest

from voicegate.bench.engine.load import Heard
from voicegate.bench.engine.report import is_sustained, most_sustained, outcome_report, ratios, table, targets_report
from voicegate.bench.engine.scenarios import Outcome
from voicegate.engine.interface import Timing

GOOD = Heard(
    first_audio_ms=100.0,
    buffered_audio_ms=105.0,
    audio_ms=4000.0,
    rtf=0.25,
    second_chunk_headroom_ms=200.0,
    worst_underrun_ms=0.0,
    worst_buffered_underrun_ms=0.0,
)
USAGE = {"bench_loop": {"lag_ms": None}, "stages": {"llm": {"steps": 3}}, "gpu_memory_gib": None}


def outcome(*heard: Heard, failures: tuple[str, ...] = ()) -> Outcome:
    return Outcome(
        len(heard),
        list(heard),
        timings=[Timing(queue_ms=1.0, first_packet_ms=90.0)],
        failures=list(failures),
        expected_s=4.0 * len(heard),
        audio_s_per_s=12.0,
        usage=dict(USAGE),
    )


def test_an_outcome_in_numbers() -> None:
    heard = [GOOD] * 96 + [replace(GOOD, first_audio_ms=400.0, worst_underrun_ms=70.0, rtf=None, is_cut_off=True)] * 4
    report = outcome_report(outcome(*heard))
    in_time = {"mean": 112.0, "p50": 100.0, "p90": 100.0, "p95": 100.0}
    assert report["first_audio_ms"] == {**in_time, "p99": 400.0, "max": 400.0, "num": 100}
    assert (report["c50"], report["c100"], report["c50_after_80_ms"]) == (0.96, 1.0, 1.0)
    assert (report["num"], report["num_cut_off"], report["num_failed"]) == (100, 4, 0)
    assert report["rtf"]["num"] == 96
    assert report["audio_as_expected"] == 1.0
    assert report["second_chunk_headroom_ms"]["min"] == 200.0
    assert report["timing_ms"]["queue_ms"]["p50"] == 1.0
    assert report["timing_ms"]["first_chunk_ms"] is None


def test_nobody_heard_anything() -> None:
    report = outcome_report(outcome(failures=("no room", "no room", "broken")))
    assert report["first_audio_ms"] is None
    assert report["c100"] is None
    assert (report["num_failed"], report["failures"]) == (3, ["broken", "no room"])
    assert is_sustained(report) is None


@pytest.mark.parametrize(
    ("others", "failures", "expected"),
    [
        ([], (), True),
        ([replace(GOOD, worst_underrun_ms=101.0)], (), True),  # C100 is 99 %
        ([replace(GOOD, worst_underrun_ms=101.0)] * 2, (), False),
        ([replace(GOOD, first_audio_ms=301.0)] * 5, (), True),  # p95 is what counts
        ([replace(GOOD, first_audio_ms=301.0)] * 6, (), False),
        ([replace(GOOD, is_cut_off=True)], (), False),
        ([], ("refused",), False),
    ],
)
def test_what_is_sustained(others: list[Heard], failures: tuple[str, ...], expected: bool) -> None:
    heard = [GOOD] * (100 - len(others)) + others
    assert is_sustained(outcome_report(outcome(*heard, failures=failures))) is expected


def scenarios() -> dict[str, Any]:
    good = outcome_report(outcome(*[GOOD] * 100))
    return {
        "first-audio": {**good, "streams": 1},
        "sustain-300": {**good, "streams": 300, "is_sustained": True},
        "sustain-400": {**good, "streams": 400, "is_sustained": False},
        "burst-64": {**good, "streams": 64, "audio_s_per_s": 450.0},
        "burst-400": {**good, "streams": 400, "audio_s_per_s": 600.0},
    }


PLAIN = {"first_audio_ms": {"p50": 2500.0}, "audio_s_per_s": 5.0, "audio_s_per_s_overlapped": 6.0}
SLOW = {"first_audio_ms": {"p50": 1500.0}, "audio_s_per_s": 1.0, "audio_s_per_s_overlapped": 1.2}
PLAIN_RUN = {"dtype": "bfloat16", "by_llm": {"lean": PLAIN, "transformers": SLOW}}


def test_ratios_to_the_plain_way() -> None:
    assert ratios(scenarios(), PLAIN) == {"first_audio": 25.0, "throughput": 120.0, "throughput_overlapped": 100.0}
    assert ratios({}, PLAIN) == {"first_audio": None, "throughput": None, "throughput_overlapped": None}


def test_the_most_streams_sustained() -> None:
    assert most_sustained(scenarios()) == 300
    assert most_sustained({"sustain-9": {"streams": 9, "is_sustained": False}}) == 0
    assert most_sustained({}) is None


def test_targets_are_met_missed_or_not_measured() -> None:
    run = {
        "scenarios": scenarios(),
        "ratios": {"lean": ratios(scenarios(), PLAIN), "transformers": ratios(scenarios(), SLOW)},
    }
    verdicts = {row["target"]: row["is_met"] for row in targets_report(run)}
    assert verdicts == {
        "first audio, 1 stream, p50 ms": False,
        "first audio, 16 live, p95 ms": None,
        "first audio, 128 live, p95 ms": None,
        "streams sustained": True,
        "streams sustained, second goal": False,
        "audio-s/s, all at once": True,
        "audio-s/s, second goal": False,
        "first audio, times the plain way": True,
        "throughput, times the plain way": True,
        "first audio, times the reference": False,
        "throughput, times the reference": True,
    }


def test_the_printed_table_has_a_line_a_scenario_and_every_judged_target() -> None:
    run: dict[str, Any] = {
        "scenarios": scenarios(),
        "plain": PLAIN_RUN,
        "ratios": {"lean": ratios(scenarios(), PLAIN), "transformers": ratios(scenarios(), SLOW)},
    }
    run["scenarios"]["cancel-4"] = {
        **outcome_report(outcome(GOOD, failures=("refused",))),
        "cancel_ms": {"p50": 1.0, "p95": 2.0, "p99": None},
        "packets_after_cancel": 0,
    }
    run["scenarios"]["memory"] = {"mib_per_stream_second": 90.0, "mib_per_stream": 3.0}
    run["targets"] = targets_report(run)
    lines = table(run)
    assert [line.split()[0] for line in lines[1:7]] == [name for name in run["scenarios"] if name != "memory"]
    assert sum(line.startswith("target ") for line in lines) == 9
    text = "\n".join(lines)
    assert "cancel-4: 1 failed refused" in text
    assert "90.0 MiB a second" in text
    assert "plain way, lean: the engine is better by {'first_audio': 25.0, 'throughput': 120.0" in text
    assert "plain way, transformers: the engine is better by {'first_audio': 15.0, 'throughput': 600.0" in text
