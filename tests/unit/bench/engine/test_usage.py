"""An engine's counters of a scenario."""

from voicegate.bench.engine.usage import stage_report


def test_a_scenarios_counters_are_differences_by_stage() -> None:
    before = {"llm_steps": 100, "llm_rows": 1000, "llm_launches": 100, "euler_steps": 5, "flow_batches": 7}
    after = {
        **{"llm_steps": 300, "llm_rows": 3000, "llm_launches": 500, "euler_steps": 45, "flow_batches": 7},
        **{"euler_seconds": 0.5, "vocoder_calls": 4},
    }
    assert stage_report(before, after, wall_s=2.0, audio_s=5.0) == {
        "llm": {
            **{"steps": 200, "rows": 2000, "launches": 400},
            **{"per_s": 100.0, "rows_per_call": 10.0, "launches_per_call": 2.0},
        },
        "euler": {"steps": 40, "seconds": 0.5, "per_s": 20.0, "ms_per_call": 12.5, "share_of_time": 0.25, "rtf": 0.1},
        "vocoder": {"calls": 4, "per_s": 2.0},
    }
