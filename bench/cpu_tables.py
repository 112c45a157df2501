"""Tables of what was measured on a CPU, as docs/measured.md has them. Pure."""

from typing import Any, Final

from voicegate.bench.cells import commit, half, middle, shares
from voicegate.clients.bench.scenario import Kind, parse

_STAGES: Final = ("llm", "flow", "vocoder")


def speed_table(run: dict[str, Any]) -> list[str]:
    """From bench.engine on a CPU."""
    machine = run["environment"]
    where = f"{machine['num_cores']} cores of an {machine['cpu']}, torch {machine['torch']}, {commit(run)}"
    lines = [
        f"The engine without sockets, on {where}, float32.",
        "",
        "| load | turns | first audio p50 / p95 | second chunk early by at least | real-time factor p50 "
        "| LLM, flow, vocoder |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in run["scenarios"].items():
        first, early, rtf = row["first_audio_ms"], row["headroom_ms"], row["rtf"]
        # More is made of a turn that is interrupted than is heard of it.
        is_whole = rtf is not None and parse(name).kind is not Kind.ALONE
        made = "–" if not is_whole else ", ".join(f"{row['stages'][stage]['rtf']:.3f}" for stage in _STAGES)
        cells = (middle(first), "–" if early is None else f"{early['min']:.0f} ms", half(rtf), made)
        lines.append(f"| {name} | {first['num']} | {' | '.join(cells)} |")
    return lines


def cpu_socket_table(runs: dict[str, dict[str, Any]]) -> list[str]:
    """From bench.socket on a CPU, by what its vector units were held to."""
    machine = next(iter(runs.values()))["environment"]
    lines = [
        f"Through sockets, on {machine['num_cores']} cores of an {machine['cpu']}, torch {machine['torch']}.",
        "",
        "| load | vectors | turns | first message p50 / p95 | C50 / C100 | longest gap | real-time factor | commit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return lines + [
        f"| {name} | {vectors} | {row['first_audio_ms']['num']} | {middle(row['first_audio_ms'])} | {shares(row)} "
        f"| {row['gap_ms']['longest']:.0f} ms | {half(row['rtf'])} | {run['environment']['commit']} |"
        for vectors, run in runs.items()
        for name, row in run["scenarios"].items()
        if row is not None and row["first_audio_ms"]
    ]


def quality_table(run: dict[str, Any]) -> list[str]:
    return [
        f"Word errors of texts, each with {run['seeds']} seeds, {commit(run)}.",
        "In the last column stand texts that were said with two words more, or with more than that.",
        "",
        "| texts | heard by | voice | mode | word error rate | errors of words | said more |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {row['texts']} | {row['recogniser']} | {row['voice']} | {row['mode']} "
            f"| {row['errors'] / row['words']:.3f} | {row['errors']} of {row['words']} "
            f"| {row['said_more']} of {len(row['sentences'])} |"
            for row in run["results"]
        ),
    ]
