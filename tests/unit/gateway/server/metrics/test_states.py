"""States at a scrape: of a server that knows nothing yet, and of an engine that tells all."""

from prometheus_client import CollectorRegistry

from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import CONFIG, HandDrivenEngine
from voicegate import __version__
from voicegate.engine.interface import EngineInfo, EngineStats
from voicegate.gateway.server.metrics.states import States
from voicegate.gateway.server.status import Load, Status


def scraped(status: Status, stats: EngineStats) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(States(lambda: status, lambda: stats))
    return registry


def test_before_there_is_an_engine_all_is_nothing() -> None:
    registry = scraped(Status("warming up", None), EngineStats())
    assert registry.get_sample_value("voicegate_ready") == 0
    assert registry.get_sample_value("voicegate_engine_hangs") == 0
    assert registry.get_sample_value("voicegate_batch_rows_count", {"stage": "flow"}) == 0
    assert registry.get_sample_value("voicegate_engine_steps_total") == 0


def test_what_runs_the_models_is_told() -> None:
    info = EngineInfo("m", (), "v", (), 312, 8, 5000, flow="cuda", vocoder="tensorrt")
    registry = scraped(Status(None, info), EngineStats())
    labels = {"version": __version__, "model": "m", "flow": "cuda", "vocoder": "tensorrt"}
    assert registry.get_sample_value("voicegate_info", labels) == 1


def test_load_is_told_with_its_limits() -> None:
    registry = scraped(Status(None, None, Load(sockets=3, max_sockets=4, waiting=2, max_waiting=8)), EngineStats())
    assert registry.get_sample_value("voicegate_ready") == 1
    assert registry.get_sample_value("voicegate_sockets") == 3
    assert registry.get_sample_value("voicegate_sockets_limit") == 4
    assert registry.get_sample_value("voicegate_waiting") == 2


def test_engine_processes_are_told_by_name() -> None:
    gauges = {"replica_ready": 1, "replica_utterances": 3, "replica_room": 5, "free_flow_blocks": 40.0}
    parts = {"cuda:0": EngineStats({"replicas_lost": 2}, gauges), "cuda:1": EngineStats({}, {"replica_ready": 0})}
    registry = scraped(Status(None, None), EngineStats(engines=parts))
    for name, first, second in (
        ("replica_ready", 1, 0),
        ("replica_utterances", 3, 0),
        ("replica_room", 5, 0),
        ("replica_flow_blocks_free", 40, 0),
        ("replicas_lost_total", 2, 0),
        ("replica_utterances_lost_total", 0, 0),
    ):
        assert registry.get_sample_value(f"voicegate_{name}", {"replica": "cuda:0"}) == first
        assert registry.get_sample_value(f"voicegate_{name}", {"replica": "cuda:1"}) == second


def test_devices_are_told_by_name() -> None:
    own = {"flow_seconds": 1.5, "flow_steps": 30.0, "vocoder_calls": 3.0}
    stats = EngineStats(
        engines={"cuda:1": EngineStats(own, {"max_flow_blocks": 90.0})},
        hangs={"cuda:0": False, "cuda:1": True},
        whereabouts="cuda:0",
    )
    registry = scraped(Status(None, None), stats)
    assert registry.get_sample_value("voicegate_device_hangs", {"device": "cuda:0"}) == 0
    assert registry.get_sample_value("voicegate_device_hangs", {"device": "cuda:1"}) == 1
    for name, stage, number in (("seconds", "flow", 1.5), ("runs", "flow", 30), ("runs", "vocoder", 3)):
        labels = {"replica": "cuda:1", "stage": stage}
        assert registry.get_sample_value(f"voicegate_replica_stage_{name}_total", labels) == number
    assert (
        registry.get_sample_value("voicegate_replica_stage_runs_total", {"replica": "cuda:1", "stage": "llm"}) is None
    )
    assert registry.get_sample_value("voicegate_replica_flow_blocks_limit", {"replica": "cuda:1"}) == 90
    all_of_it = scraped(Status(None, None, hang="the engine hangs at cuda:0"), stats)
    assert all_of_it.get_sample_value("voicegate_device_hangs", {"device": "cuda:0"}) == 1


def test_what_only_tensorrt_llm_counts() -> None:
    stats = EngineStats({"llm_prompt_tokens": 9.0, "llm_cached_tokens": 5.0, "llm_strays": 2.0})
    registry = scraped(Status(None, None), stats)
    for name, number in (("prompt", 9), ("cached", 5), ("stray", 2)):
        assert registry.get_sample_value(f"voicegate_llm_{name}_tokens_total") == number


def test_what_the_engines_core_tells_is_all_of_it_shown() -> None:
    engine = HandDrivenEngine(CONFIG, hollow().stages)
    for name in ("one", "two", "three"):
        engine.core.push_text(engine.submit(name), "Good morning, and welcome back. ")
    engine.run()
    core = engine.core
    registry = scraped(Status(None, None), EngineStats(core.counters, core.gauges, core.batch_sizes))
    for stage, calls in (("llm", "llm_steps"), ("flow", "flow_steps"), ("vocoder", "vocoder_calls")):
        labels = {"stage": stage}
        count = registry.get_sample_value("voicegate_batch_rows_count", labels)
        assert count == core.counters[calls] > 0
        rows = registry.get_sample_value("voicegate_batch_rows_sum", labels)
        assert rows == core.counters[f"{stage}_rows"]
        alone = registry.get_sample_value("voicegate_batch_rows_bucket", labels | {"le": "1.0"})
        pairs = registry.get_sample_value("voicegate_batch_rows_bucket", labels | {"le": "2.0"})
        four = registry.get_sample_value("voicegate_batch_rows_bucket", labels | {"le": "4.0"})
        assert alone is not None
        assert pairs is not None
        assert alone <= pairs <= four == count
    shown = {sample.value for metric in registry.collect() for sample in metric.samples}
    assert set(core.gauges.values()) <= shown
    limit = registry.get_sample_value("voicegate_flow_blocks_limit")
    assert limit == core.gauges["max_flow_blocks"] > 0
    assert registry.get_sample_value("voicegate_flow_blocks_free") == core.gauges["free_flow_blocks"]
