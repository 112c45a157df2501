"""An engine's counters of a scenario, and GPU memory by differences."""

from tests.support.golden import TINY_MODEL_DIR
from voicegate.bench.engine.memory import growth, memory_growth
from voicegate.bench.engine.usage import stage_report
from voicegate.engine.config import EngineConfig


def test_a_scenarios_counters_are_differences_by_stage() -> None:
    before = {"llm_steps": 100, "llm_rows": 1000, "llm_launches": 100, "euler_steps": 5, "flow_batches": 7}
    after = {
        **{"llm_steps": 300, "llm_rows": 3000, "llm_launches": 500, "euler_steps": 45, "flow_batches": 7},
        **{"euler_seconds": 0.5, "vocoder_calls": 4},
    }
    assert stage_report(before, after, wall_s=2.0) == {
        "llm": {
            **{"steps": 200, "rows": 2000, "launches": 400},
            **{"per_s": 100.0, "rows_per_call": 10.0, "launches_per_call": 2.0},
        },
        "euler": {"steps": 40, "seconds": 0.5, "per_s": 20.0, "ms_per_call": 12.5, "share_of_time": 0.25},
        "vocoder": {"calls": 4, "per_s": 2.0},
    }


def test_memory_of_a_stream_and_of_its_seconds_are_told_apart() -> None:
    # 7 GiB of weights, 100 MiB a stream and 90 MiB a second of it: 250 tokens are 10 s.
    def allocated(num_streams: int, context_s: int) -> int:
        return (7 * 1024 + num_streams * (100 + 90 * context_s)) * 2**20

    measured = growth(allocated(8, 10), allocated(8, 20), allocated(16, 10), num_streams=8, num_tokens=250)
    assert measured["mib_per_stream_second"] == 90.0
    assert measured["mib_per_stream"] == 100.0


async def test_without_a_gpu_memory_is_not_measured() -> None:
    assert await memory_growth(EngineConfig(TINY_MODEL_DIR, device="cpu")) == {"not_measured": "no CUDA device"}
