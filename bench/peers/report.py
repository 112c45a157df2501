"""Tables of a run of bench.peers: peers beside voicegate, load by load, and what flatters whom. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final

from voicegate.bench.cells import MISSING, commit, lateness, span
from voicegate.clients.bench.scenario import parse
from voicegate.clients.bench.table import LOST

OURS: Final = "voicegate"
PLAIN: Final = "transformers"
_PLAIN_LOAD: Final = "one text at a time"
_ALONE: Final = "closed:1:whole"  # of ours, beside the plain way
_COMMON: Final = (
    ("neither", "clients and server share one machine and its loopback; every server is warm"),
    ("the peer", "voicegate encodes Opus, and the peer sends PCM"),
    ("voicegate", "the loads, and how they are measured, are voicegate's own"),
)
_NOISE: Final = ("either", "with generated weights the speech is noise: equal cost, and nothing is said of quality")
_NONE: Final = (MISSING, MISSING)
_OF_A_STAGE: Final = ("dtype", "max_num_seqs", "gpu_memory_utilization", "enforce_eager")  # of vLLM-Omni's deploy file
_HEAD: Final = (
    "load",
    "server",
    "first audio p50, ms",
    "p95",
    "whole, s",
    "RTF",
    "longest gap, ms",
    "audio-s/s",
    "turns",
    "s a turn",
    "lost",
    "voicegate's first audio is sooner, times",
    "its audio-s/s, times",
)


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Markdown."""
    servers, conditions = report["servers"], report["conditions"]
    each = f"Each load runs for {conditions['duration_s']:g} s"
    several = f", {conditions['rounds']} times; cells have the least and the greatest"
    yield from (f"{each}{several if conditions['rounds'] > 1 else ''}.", "")
    yield from ("| server | what ran |", "|---|---|")
    for name, server in servers.items():
        yield f"| {name} | {_facts(server)} |"
        yield from (f"| | {each} |" for each in _set(server["settings"]))
    yield ""
    yield from _table(servers)
    for name, server in servers.items():
        for sentence in lateness({f"{load} of {name}": row for load, row in server["loads"].items()}):
            yield from ("", sentence)
    yield from ("", "| flatters | how |", "|---|---|")
    yield from (f"| {whom} | {how} |" for whom, how in flattery(report))


def sentences(report: Mapping[str, Any]) -> Iterator[str]:
    """First audio of each server alone, and at the largest load at which a peer was heard. Empty: none was."""
    servers = report["servers"]
    first = {name: _first_audio_ms(server) for name, server in servers.items()}
    if OURS not in servers or not any(first[name] for name in first.keys() - {OURS}):
        return
    where = servers[OURS]["environment"]["gpu"]
    alone = {name: each.get(_ALONE, each.get(_PLAIN_LOAD)) for name, each in first.items()}
    yield f"First audio of a whole text alone on one {where}, at the median: {_listed(alone)}."
    shared = [
        load for load in first[OURS] if load != _ALONE and any(load in first[name] for name in first.keys() - {OURS})
    ]
    if shared:
        largest = max(shared, key=lambda load: parse(load).num_streams)
        told = _listed({name: each.get(largest) for name, each in first.items()})
        yield f"With {parse(largest).num_streams} streams at once: {told}."


def _first_audio_ms(server: Mapping[str, Any]) -> dict[str, list[float]]:
    """Medians of the rounds of each load at which somebody was heard."""
    loads = {load: _of(rows, "first_audio_ms", "p50") for load, rows in _rounds(server).items()}
    return {load: times for load, times in loads.items() if times}


def _listed(times_ms: Mapping[str, Sequence[float] | None]) -> str:
    return ", ".join(f"{name} {span(each)} ms" for name, each in times_ms.items() if each)


def flattery(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Whom it flatters, and how."""
    servers = report["servers"]
    phrases = list(_COMMON)
    if "generated" in report["conditions"]["voice"]:
        phrases.append(_NOISE)
    phrases += ((whom, how) for server in servers.values() for whom, how in server["settings"].get("flattery", ()))
    if PLAIN in servers:
        phrases.append((PLAIN, "no socket, no encoding, one text after another; its audio-s/s is of one stream"))
    return phrases


def _facts(server: Mapping[str, Any]) -> str:
    machine, settings = server["environment"], server["settings"]
    versions = [f"{name} {version}" for name, version in settings.get("versions", {}).items()]
    ready = f"ready after {server['start_s']:.0f} s" if "start_s" in server else ""
    failed = f"failed: {server['failed']}" if "failed" in server else ""
    known = [
        *versions,
        machine["gpu"] or f"{machine['num_cores']} cores of an {machine['cpu']}",
        f"torch {machine['torch']}",
        commit(server),
        ready,
        failed,
    ]
    return ", ".join(fact for fact in known if fact)


def _set(settings: Mapping[str, Any]) -> Iterator[str]:
    """How it was set up."""
    for name, value in settings.items():
        match name:
            case "versions" | "flattery" | "fixes":  # fixes stand with what flatters whom
                pass
            case "environment":
                yield from (f"{variable}={text}" for variable, text in value.items())
            case "deploy":
                for stage in value["stages"]:
                    told = " ".join(f"{key} {stage[key]}" for key in _OF_A_STAGE if key in stage)
                    yield f"stage {stage['stage_id']}: {told}"
            case _:
                yield f"{name.replace('_', ' ')} {value}"


def round_name(load: str, number: int) -> str:
    return load if number == 0 else f"{load} {number + 1}"


def _table(servers: Mapping[str, Any]) -> Iterator[str]:
    yield f"| {' | '.join(_HEAD)} |"
    yield len(_HEAD) * "|---" + "|"
    rounds = {name: _rounds(server) for name, server in servers.items()}
    for load in dict.fromkeys(load for loads in rounds.values() for load in loads):
        own = rounds.get(OURS, {}).get(_ALONE if load == _PLAIN_LOAD else load, [])
        for name, loads in rounds.items():
            if rows := loads.get(load):
                yield f"| {' | '.join((load, name, *_cells(rows), *(_ratios(rows, own) if name != OURS else _NONE)))} |"


def _rounds(server: Mapping[str, Any]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Rows of a load, of each round."""
    found = defaultdict(list)
    for name, row in server["loads"].items():
        found[name.partition(" ")[0]].append(row)
    return found | ({_PLAIN_LOAD: [server["figures"]]} if "figures" in server else {})


def _cells(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The least and the greatest of several rounds; a failure is told alone."""
    for row in rows:
        if "failed" in row:
            return (row["failed"], *(MISSING,) * 8)
    turns = [
        row["audio_s"] / row["first_audio_ms"]["num"] for row in rows if "outcomes" in row and row["first_audio_ms"]
    ]
    lost = [sum(row["outcomes"][each.value] for each in LOST) for row in rows if "outcomes" in row]
    return (
        span(_of(rows, "first_audio_ms", "p50")),
        span(_of(rows, "first_audio_ms", "p95")),
        span([each / 1000 for each in _of(rows, "total_ms", "p50")], digits=1),
        span(_of(rows, "rtf", "p50"), digits=2),
        span(_of(rows, "gap_ms", "longest")),
        span([row["audio_s_per_s"] for row in rows], digits=1),
        str(sum(row["first_audio_ms"]["num"] for row in rows if row["first_audio_ms"])),
        span(turns, digits=1),  # unlike lengths are unlike work
        str(sum(lost)) if lost else MISSING,
    )


def _of(rows: Sequence[Mapping[str, Any]], name: str, key: str) -> list[float]:
    return [row[name][key] for row in rows if row.get(name) is not None]


def _ratios(rows: Sequence[Mapping[str, Any]], own: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Ratios of the medians of rounds."""
    first, own_first = (_of(each, "first_audio_ms", "p50") for each in (rows, own))
    rate, own_rate = ([row["audio_s_per_s"] for row in each if "failed" not in row] for each in (rows, own))
    return _ratio(first, own_first), _ratio(own_rate, rate)


def _ratio(above: Sequence[float], below: Sequence[float]) -> str:
    return f"{median(above) / median(below):.1f}" if above and below and median(below) else MISSING
