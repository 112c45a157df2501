"""Reads states at a scrape: how much of the server is taken, and the engine's own numbers.

Called from the exporter's thread, while the event loop and the engine's thread go on: it reads numbers, one by one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from voicegate import __version__
from voicegate.engine.interface import EngineStats
from voicegate.gateway.server.status import Status

_STAGES: Final = ("llm", "flow", "vocoder")

# Name without its prefix, help, the engine's own name.
_ENGINE_COUNTERS: Final = (
    ("engine_steps", "Turns of the engine's thread", "host_steps"),
    ("engine_thread_cpu_seconds", "CPU time of the engine's thread", "host_seconds"),
    ("llm_prompt_tokens", "Prompt tokens of TensorRT-LLM's requests; 0 with other backends", "llm_prompt_tokens"),
    ("llm_cached_tokens", "Prompt tokens found in its prefix cache", "llm_cached_tokens"),
    ("llm_stray_tokens", "Tokens of it that are no speech, and are dropped", "llm_strays"),
    ("clauses_unheard", "Words of which the models made no sound, also not with another seed", "clauses_unheard"),
    ("encoder_processes_lost", "Encoder processes that ended unasked; each is replaced", "encoders_lost"),
)
_ENGINE_GAUGES: Final = (
    ("active_clauses", "Clauses that hold memory of the flow", "active_clauses"),
    ("active_clauses_limit", "Most clauses that may hold it", "max_active_clauses"),
    ("waiting_clauses", "Clauses that wait for room in the models", "waiting_clauses"),
    ("llm_slots_free", "Places for LLM passes", "free_llm_slots"),
    ("flow_blocks_free", "Blocks of the flow's memory that hold nothing", "free_flow_blocks"),
    ("flow_blocks_reserved", "Free blocks that active clauses are expected to fill yet", "reserved_flow_blocks"),
    ("flow_blocks_limit", "All blocks beside those of voices' prompts", "max_flow_blocks"),
)
# For each engine process, or each token2wav of a disaggregated engine. Name without its prefix, help, the engine's own
# name.
_REPLICA_GAUGES: Final = (
    ("replica_ready", "1: this engine process, or token2wav, takes new requests", "replica_ready"),
    ("replica_utterances", "Contexts that it speaks", "replica_utterances"),
    ("replica_room", "New contexts that it would take at once", "replica_room"),
    ("replica_waiting_clauses", "Clauses that wait for room in its models", "waiting_clauses"),
    ("replica_flow_blocks_free", "Blocks of its flow's memory that hold nothing", "free_flow_blocks"),
    ("replica_flow_blocks_limit", "All of them beside those of voices' prompts", "max_flow_blocks"),
)
_REPLICA_COUNTERS: Final = (
    ("replicas_lost", "Times that an engine process ended unasked, or a token2wav's device hung", "replicas_lost"),
    ("replica_utterances_lost", "Contexts that failed with it", "replica_utterances_lost"),
)
# By stage of each one.
_REPLICA_STAGE_COUNTERS: Final = (
    ("replica_stage_seconds", "Time of a stage's work, of one engine process or token2wav", ("seconds",)),
    ("replica_stage_runs", "LLM steps, Euler steps of the flow, calls of the vocoder", ("steps", "calls")),
)
_STAGE_COUNTERS: Final = (
    ("stage_seconds", "Time of a stage's work", "seconds"),
    ("graph_launches", "CUDA graphs, or kernels, launched for a stage", "launches"),
)
_LOAD: Final = (
    ("sockets", "WebSockets open, and requests for speech"),
    ("contexts", "Contexts open"),
    ("utterances", "Contexts with something to say"),
    ("waiting", "Contexts that wait for room in the engine"),
)


class States(Collector):
    def __init__(self, status: Callable[[], Status], stats: Callable[[], EngineStats]) -> None:
        self._status = status
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        info = GaugeMetricFamily("voicegate_info", "Always 1", labels=("version", "model", "flow", "vocoder"))
        told = status.info
        info.add_metric((__version__, *(("", "", "") if told is None else (told.model, told.flow, told.vocoder))), 1)
        yield info
        yield _gauge("ready", "1: a new socket would be let in", status.refusal is None)
        yield _gauge("engine_hangs", "1: the engine has work and gets nothing done", status.hang is not None)
        for name, text in _LOAD:
            yield _gauge(name, text, getattr(status.load, name))
            yield _gauge(f"{name}_limit", f"Of {name}: so many may be", getattr(status.load, f"max_{name}"))
        yield _gauge("sessions_absent", "Sessions that wait for their clients to come back", status.num_absent)
        yield _gauge("engine_room", "So many more utterances the engine would take at once", status.load.room)
        stats = self._stats()
        for name, text, theirs in _ENGINE_COUNTERS:
            yield CounterMetricFamily(f"voicegate_{name}", text, value=stats.counters.get(theirs, 0.0))
        for name, text, theirs in _ENGINE_GAUGES:
            yield _gauge(name, text, stats.gauges.get(theirs, 0.0))
        yield from _by_replica(stats.engines)
        device_hangs = GaugeMetricFamily(
            "voicegate_device_hangs", "1: this device of several has work and gets nothing done", labels=("device",)
        )
        for device, hangs in stats.hangs.items():
            device_hangs.add_metric((device,), hangs or (status.hang is not None and device == stats.whereabouts))
        yield device_hangs
        for name, text, theirs in _STAGE_COUNTERS:
            family = CounterMetricFamily(f"voicegate_{name}", text, labels=("stage",))
            for stage in _STAGES:
                family.add_metric((stage,), stats.counters.get(f"{stage}_{theirs}", 0.0))
            yield family
        yield _batches(stats.counters, stats.batch_sizes)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"voicegate_{name}", text, value=value)


def _by_replica(replicas: Mapping[str, EngineStats]) -> Iterator[Metric]:
    for name, text, theirs in _REPLICA_GAUGES:
        gauge = GaugeMetricFamily(f"voicegate_{name}", text, labels=("replica",))
        for replica, stats in replicas.items():
            gauge.add_metric((replica,), stats.gauges.get(theirs, 0.0))
        yield gauge
    for name, text, theirs in _REPLICA_COUNTERS:
        counter = CounterMetricFamily(f"voicegate_{name}", text, labels=("replica",))
        for replica, stats in replicas.items():
            counter.add_metric((replica,), stats.counters.get(theirs, 0.0))
        yield counter
    for name, text, ends in _REPLICA_STAGE_COUNTERS:
        counter = CounterMetricFamily(f"voicegate_{name}", text, labels=("replica", "stage"))
        for replica, stats in replicas.items():
            for stage, theirs in product(_STAGES, ends):
                if (number := stats.counters.get(f"{stage}_{theirs}")) is not None:
                    counter.add_metric((replica, stage), number)
        yield counter


def _batches(counters: Mapping[str, float], sizes: Mapping[str, Sequence[int]]) -> Metric:
    family = HistogramMetricFamily("voicegate_batch_rows", "Streams in a batch, by stage", labels=("stage",))
    for stage in _STAGES:
        buckets, total = [], 0
        for place, number in enumerate(sizes.get(stage, ())):
            total += number
            buckets.append((str(float(2**place)), total))
        family.add_metric((stage,), [*buckets, ("+Inf", total)], counters.get(f"{stage}_rows", 0.0))
    return family
