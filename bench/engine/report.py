"""Outcomes -> numbers, a table for people, and whether the targets of one H200 are met. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from voicegate.bench.engine.load import PREBUFFER_MS, continuity
from voicegate.bench.engine.scenarios import Outcome
from voicegate.clients.bench.stats import low_summary, summary

_CONTINUITY_LIMITS_MS: Final = (50, 100)
_NUM_FAILURES_SHOWN: Final = 3

# "Sustained" means: no listener has a gap, new requests are served, nothing is refused or left behind.
SUSTAINED_C100: Final = 0.99
SUSTAINED_FIRST_AUDIO_P95_MS: Final = 300.0


def outcome_report(outcome: Outcome) -> dict[str, Any]:
    """Plain data for JSON. Shares are None where no listener can be judged."""
    heard = outcome.heard
    audio_s = [each.audio_ms / 1000 for each in heard]
    report: dict[str, Any] = {
        "streams": outcome.num_streams,
        "num": len(heard),
        "num_failed": len(outcome.failures),
        "failures": sorted(set(outcome.failures))[:_NUM_FAILURES_SHOWN],
        "num_cut_off": sum(each.is_cut_off for each in heard),
        "first_audio_ms": summary([each.first_audio_ms for each in heard]),
        f"first_audio_after_{PREBUFFER_MS}_ms_ms": summary([each.buffered_audio_ms for each in heard]),
        "second_chunk_headroom_ms": low_summary(_known([each.second_chunk_headroom_ms for each in heard])),
        "worst_underrun_ms": summary(_known([each.worst_underrun_ms for each in heard])),
        f"worst_underrun_after_{PREBUFFER_MS}_ms_ms": summary(
            _known([each.worst_buffered_underrun_ms for each in heard])
        ),
        "rtf": summary(_known([each.rtf for each in heard]), digits=4),
        "audio_s": summary(audio_s),
        "audio_as_expected": round(sum(audio_s) / outcome.expected_s, 3) if outcome.expected_s else None,
        "audio_s_per_s": outcome.audio_s_per_s,
        "timing_ms": _timing_report(outcome),
        **outcome.extra,
        **outcome.usage,
    }
    for limit_ms in _CONTINUITY_LIMITS_MS:
        report[f"c{limit_ms}"] = _rounded(continuity([each.worst_underrun_ms for each in heard], limit_ms))
        report[f"c{limit_ms}_after_{PREBUFFER_MS}_ms"] = _rounded(
            continuity([each.worst_buffered_underrun_ms for each in heard], limit_ms)
        )
    return report


def is_sustained(report: Mapping[str, Any]) -> bool | None:
    """None where nobody can be judged."""
    if report["c100"] is None or report["first_audio_ms"] is None:
        return None
    has_trouble = bool(report["num_failed"] or report["num_cut_off"])
    is_prompt = report["first_audio_ms"]["p95"] <= SUSTAINED_FIRST_AUDIO_P95_MS
    return bool(report["c100"] >= SUSTAINED_C100 and is_prompt and not has_trouble)


def ratios(scenarios: Mapping[str, Mapping[str, Any]], plain: Mapping[str, Any]) -> dict[str, float | None]:
    """How many times better than the plain way by one decoder, whose figures `plain` is.

    Throughput: the best of the bursts against one stream at a time.
    """
    first = _at(scenarios, "first-audio", "first_audio_ms", "p50")
    rate = best_throughput(scenarios)
    return {
        "first_audio": round(plain["first_audio_ms"]["p50"] / first, 1) if first else None,
        "throughput": round(rate / plain["audio_s_per_s"], 1) if rate else None,
        "throughput_overlapped": round(rate / plain["audio_s_per_s_overlapped"], 1) if rate else None,
    }


def best_throughput(scenarios: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Audio-seconds per second of the best burst."""
    rates = [row["audio_s_per_s"] for name, row in scenarios.items() if name.startswith("burst-")]
    return max(rates, default=None)


def most_sustained(scenarios: Mapping[str, Mapping[str, Any]]) -> int | None:
    """The largest number of live streams that were sustained in any scenario; None: none was tried."""
    tried = {
        row["streams"]: row["is_sustained"]
        for name, row in scenarios.items()
        if name.startswith(("sustain-", "live-")) and row.get("is_sustained") is not None
    }
    return max((streams for streams, is_met in tried.items() if is_met), default=0) if tried else None


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    value: Callable[[Mapping[str, Any]], float | None]  # of a whole report; None: not measured
    limit: float
    is_upper: bool  # the value may not exceed the limit


TARGETS: Final = (
    Target("first audio, 1 stream, p50 ms", lambda run: _scenario(run, "first-audio", "p50"), 30, is_upper=True),
    Target("first audio, 16 live, p95 ms", lambda run: _scenario(run, "live-16", "p95"), 60, is_upper=True),
    Target("first audio, 128 live, p95 ms", lambda run: _scenario(run, "live-128", "p95"), 150, is_upper=True),
    Target("streams sustained", lambda run: most_sustained(run["scenarios"]), 300, is_upper=False),
    Target("streams sustained, second goal", lambda run: most_sustained(run["scenarios"]), 400, is_upper=False),
    Target("audio-s/s, all at once", lambda run: best_throughput(run["scenarios"]), 500, is_upper=False),
    Target("audio-s/s, second goal", lambda run: best_throughput(run["scenarios"]), 700, is_upper=False),
    Target("first audio, times the plain way", lambda run: _ratio(run, "lean", "first_audio"), 20, is_upper=False),
    Target("throughput, times the plain way", lambda run: _ratio(run, "lean", "throughput"), 100, is_upper=False),
    Target(
        "first audio, times the reference", lambda run: _ratio(run, "transformers", "first_audio"), 20, is_upper=False
    ),
    Target(
        "throughput, times the reference", lambda run: _ratio(run, "transformers", "throughput"), 100, is_upper=False
    ),
)


def targets_report(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`is_met` is None where the run did not measure it."""
    rows = []
    for target in TARGETS:
        value = target.value(run)
        is_met = None if value is None else (value <= target.limit if target.is_upper else value >= target.limit)
        rows.append({"target": target.name, "limit": target.limit, "value": value, "is_met": is_met})
    return rows


def table(run: Mapping[str, Any]) -> list[str]:
    """For a terminal."""
    lines = [_HEADER, *(_line(name, row) for name, row in run["scenarios"].items() if "first_audio_ms" in row)]
    lines.append("p50/p95/p99 in ms; '-': not known, or under 100 samples. C50, C100: a player without prebuffer.")
    lines += _notes(run)
    for row in run["targets"]:
        if row["is_met"] is not None:
            verdict = "met" if row["is_met"] else "MISSED"
            lines.append(f"target {row['target']:<34} {row['limit']:>6g}: {row['value']:.6g}  {verdict}")
    return lines


_HEADER: Final = (
    f"{'scenario':<13}{'n':>5} {'first audio':>17} {'after 80 ms':>17} {'headroom':>9} {'underrun':>9}"
    f" {'C50':>6} {'C100':>6} {'RTF p50/p95':>13} {'audio-s/s':>10} {'lag p99':>8} {'sustained':>9}"
)


def _line(name: str, row: Mapping[str, Any]) -> str:
    rtf = row["rtf"]
    lag = row["bench_loop"]["lag_ms"]
    verdict = {None: "-", True: "yes", False: "no"}[row.get("is_sustained")]
    return (
        f"{name:<13}{row['num']:>5} {_triple(row['first_audio_ms']):>17}"
        f" {_triple(row[f'first_audio_after_{PREBUFFER_MS}_ms_ms']):>17}"
        f" {_number(_of(row['second_chunk_headroom_ms'], 'min')):>9} {_number(_of(row['worst_underrun_ms'], 'max')):>9}"
        f" {_share(row['c50']):>6} {_share(row['c100']):>6}"
        f" {'-' if rtf is None else '{p50:.3f}/{p95:.3f}'.format(**rtf):>13} {_number(row['audio_s_per_s']):>10}"
        f" {_number(_of(lag, 'p99')):>8} {verdict:>9}"
    )


def _notes(run: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, row in run["scenarios"].items():
        trouble = [
            f"{row[key]} {word}" for key, word in (("num_failed", "failed"), ("num_cut_off", "cut off")) if row.get(key)
        ]
        if trouble:
            lines.append(f"{name}: {', '.join(trouble)} {'; '.join(row['failures'])}")
        if row.get("cancel_ms"):
            late = row["packets_after_cancel"]
            free = _triple(row["cancel_ms"])
            lines.append(f"{name}: cancel to slot free {free} ms, {late} packets between the call and its answer")
        for stage, counters in (row.get("stages") or {}).items():
            lines.append(f"{name}: {stage} {counters}")
        if "stages" in row and row["stages"] is None:
            lines.append(f"{name}: the engine does not tell time by stage and launches (no `stats()`)")
        if row.get("gpu_memory_gib"):
            lines.append(f"{name}: GPU memory in GiB {row['gpu_memory_gib']}")
        if "mib_per_stream_second" in row:
            lines.append(
                f"{name}: {row['mib_per_stream_second']} MiB a second of context and stream, "
                f"{row['mib_per_stream']} MiB a stream beside that"
            )
    for llm, figures in _at(run, "plain", "by_llm", default={}).items():
        lines.append(f"plain way, {run['plain']['dtype']}, {llm}: {figures}")
        lines.append(f"plain way, {llm}: the engine is better by {run['ratios'][llm]}")
    return lines


def _timing_report(outcome: Outcome) -> dict[str, Any]:
    """Means nothing for text that is paced beyond its first clause: the engine counts from speakable text."""
    return {
        name: summary(_known([getattr(timing, name) for timing in outcome.timings]))
        for name in ("queue_ms", "llm_first_token_ms", "first_chunk_ms", "first_packet_ms")
    }


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def _at(data: Mapping[str, Any], *keys: str, default: Any = None) -> Any:
    value: Any = data
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return default if value is None else value


def _scenario(run: Mapping[str, Any], name: str, fraction: str) -> float | None:
    value: float | None = _at(run, "scenarios", name, "first_audio_ms", fraction)
    return value


def _ratio(run: Mapping[str, Any], llm: str, name: str) -> float | None:
    value: float | None = _at(run, "ratios", llm, name)
    return value


def _of(row: Mapping[str, Any] | None, key: str) -> float | None:
    return None if row is None else row[key]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"


def _triple(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    return "/".join("-" if row[key] is None else f"{row[key]:.0f}" for key in ("p50", "p95", "p99"))
