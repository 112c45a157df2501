"""Tables of a run of bench.peers: a peer beside voicegate, load by load, and what flatters whom. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from voicegate.clients.bench.table import LOST

OURS: Final = "voicegate"
PLAIN: Final = "transformers"
_COMMON: Final = (
    ("neither", "clients and server share one machine and its loopback; texts are whole; every server is warm"),
    ("the peer", "voicegate encodes Opus, and the peer sends PCM"),
    ("voicegate", "the loads, and how they are measured, are voicegate's own"),
    ("either", "with generated weights the speech is noise: equal cost, and nothing is said of quality"),
)
_MISSING: Final = "–"


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Markdown."""
    servers = report["servers"]
    for name, server in servers.items():
        yield f"* {name}: {_facts(server)}"
    ours = servers.get(OURS)
    for name, server in servers.items():
        if name not in (OURS, PLAIN) and ours is not None:
            yield ""
            yield from _beside(name, server, ours)
    if (plain := servers.get(PLAIN)) is not None and "figures" in plain:
        yield ""
        yield from _plain(plain["figures"], ours)
    yield from ("", "| flatters | how |", "|---|---|")
    yield from (f"| {whom} | {how} |" for whom, how in flattery(servers))


def flattery(servers: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Whom it flatters, and how."""
    phrases = list(_COMMON)
    for name, server in servers.items():
        settings = server["settings"]
        if settings.get("environment", {}).get("COSYVOICE3_TRT") == "0":
            phrases.append(("voicegate", f"the flow of {name} runs in eager torch, without TensorRT"))
        if settings.get("environment", {}).get("VLLM_USE_FLASHINFER_SAMPLER") == "0":
            phrases.append(("voicegate", f"{name} samples without flashinfer"))
        for stage in settings.get("deploy", {}).get("stages", ()):
            if "max_num_seqs" in stage:
                most = f"{stage['max_num_seqs']} sequences at once"
                phrases.append(("voicegate", f"stage {stage['stage_id']} of {name} takes {most}, as published"))
            if stage.get("dtype") == "float32":
                phrases.append(("voicegate", f"the LLM of {name} runs in float32, not in bfloat16"))
        phrases += (("the peer", f"{name} has what its release lacks: {fix}") for fix in settings.get("fixes", ()))
    if PLAIN in servers:
        phrases.append((PLAIN, "no socket, no encoding, one text after another; its audio-s/s is of one stream"))
    return phrases


def _facts(server: Mapping[str, Any]) -> str:
    machine, settings = server["environment"], server["settings"]
    versions = [f"{name} {version}" for name, version in settings.get("versions", {}).items()]
    ready = f"ready after {server['start_s']:.0f} s" if "start_s" in server else ""
    failed = f"failed: {server['failed']}" if "failed" in server else ""
    facts = [
        *versions,
        machine["gpu"] or "no GPU",
        f"torch {machine['torch']}",
        f"commit {machine['commit']}",
        ready,
        failed,
    ]
    return ", ".join(fact for fact in facts if fact)


def _beside(name: str, peer: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    theirs_and_ours = (f"{each}: first audio p50 / p95 ms | audio-s/s | s a turn | lost" for each in (name, OURS))
    yield f"| load | {' | '.join(theirs_and_ours)} | first audio, times | audio-s/s, times |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for load in dict.fromkeys([*peer["loads"], *ours["loads"]]):
        rows = (peer["loads"].get(load), ours["loads"].get(load))
        theirs, own = rows
        first = _ratio(_p50(theirs), _p50(own))
        rate = _ratio(_rate(own), _rate(theirs))
        yield f"| {load} | {' | '.join(_cells(row) for row in rows)} | {first} | {rate} |"


def _plain(figures: Mapping[str, Any], ours: Mapping[str, Any] | None) -> Iterator[str]:
    alone = None if ours is None else ours["loads"].get("closed:1:whole")
    yield f"| one text at a time | first audio p50 / p95 ms | audio-s/s | times, {OURS} at closed:1 |"
    yield "|---|---|---|---|"
    first, rate = figures["first_audio_ms"], figures["audio_s_per_s"]
    ratios = f"{_ratio(first['p50'], _p50(alone))} / {_ratio(_rate(alone), rate)}"
    yield f"| {PLAIN} {figures['transformers']} | {first['p50']:.0f} / {first['p95']:.0f} | {rate:.1f} | {ratios} |"


def _cells(row: Mapping[str, Any] | None) -> str:
    if row is None or "failed" in row:
        return " | ".join((_MISSING if row is None else row["failed"], *(_MISSING,) * 3))
    first = row["first_audio_ms"]
    heard = _MISSING if first is None else f"{first['p50']:.0f} / {first['p95']:.0f}"
    # Unlike lengths are unlike work.
    turn = _MISSING if first is None else f"{row['audio_s'] / first['num']:.1f}"
    return f"{heard} | {row['audio_s_per_s']:.1f} | {turn} | {sum(row['outcomes'][each.value] for each in LOST)}"


def _p50(row: Mapping[str, Any] | None) -> float | None:
    first = None if row is None else row.get("first_audio_ms")
    return None if first is None else float(first["p50"])


def _rate(row: Mapping[str, Any] | None) -> float | None:
    return None if row is None else row.get("audio_s_per_s")


def _ratio(above: float | None, below: float | None) -> str:
    return f"{above / below:.1f}" if above and below else _MISSING
