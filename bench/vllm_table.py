"""The table of vLLM as the LLM backend beside our own runner: two runs of bench.socket with equal loads. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from voicegate.bench.cells import commit, middle, shares
from voicegate.clients.bench.table import LOST


def vllm_table(runs: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """`runs` by their `--llm-backend`."""
    yield from ("| LLM | what ran |", "|---|---|")
    for name, run in runs.items():
        machine = run["environment"]
        words = [word.rpartition("/")[2] for word in run["serve"]]  # directories are of one machine
        serve = " ".join(["voicegate serve", *words])
        vllm = f"vllm {machine['vllm']}, " if name == "vllm" else ""
        ran = f"{vllm}{machine['gpu']}, torch {machine['torch']}, {commit(run)}"
        yield f"| {name} | {ran}, `{serve}`, ready after {run['start_s']:.0f} s |"
    yield ""
    yield "| load | LLM | live | turns | first message p50 / p95 | C50 / C100 | longest gap | lost |"
    yield "|---|---|---|---|---|---|---|---|"
    for load in dict.fromkeys(load for run in runs.values() for load in run["scenarios"]):
        for name, run in runs.items():
            if (row := run["scenarios"].get(load)) is not None and row["first_audio_ms"]:
                lost = sum(row["outcomes"][each.value] for each in LOST)
                first = f"{row['first_audio_ms']['num']} | {middle(row['first_audio_ms'])}"
                gap = f"{row['gap_ms']['longest']:.0f} ms"
                yield f"| {load} | {name} | {row['live']:.0f} | {first} | {shares(row)} | {gap} | {lost} |"
