"""The table of NVIDIA's recipe for an LLM on a GPU of its own (README, "Disaggregated Server"), for both placements.

There each GPU of token2wavs has two instances, so many tasks to each: loads are counted by these here too.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from voicegate.bench.replicas import placements, scale

INSTANCES_PER_GPU: Final = 2
TASKS_PER_INSTANCE: Final = (1, 2, 3, 4, 5, 6)
_COLUMNS: Final = ("token2wav_num_gpu", "concurrent_task_per_instance", "concurrent_tasks_per_gpu")
_FIGURES: Final = {"mean": "avg", "p50": "p50", "p90": "p90", "p99": "p99"}


def measure(model: Path, gpus: Sequence[str], tasks: Sequence[int], flags: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A row for each number of token2wavs, of tasks, and placement of as many GPUs.

    Raises ValueError and CalledProcessError.
    """
    for num_token2wavs in range(1, max(len(gpus), 2)):
        used = gpus[: num_token2wavs + 1]
        totals = {each: each * INSTANCES_PER_GPU * num_token2wavs for each in tasks}
        loads = [_load(total) for total in totals.values()]
        replicas, apart = placements.placements(used)
        for name, placement in (("apart", apart), ("replicas", replicas)):
            found = scale.serve(model, placement.where, loads, max_streams=max(totals.values()), flags=flags)
            for each, total in totals.items():
                yield {
                    "placement": name,
                    "token2wav_gpus": num_token2wavs,
                    "tasks_per_instance": each,
                    "tasks_per_gpu": round(total / len(used), 2),
                    "measured": found[_load(total)],
                }


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Of first audio in ms, in the recipe's order; behind it what replicas on as many GPUs did at the same load."""
    heads = [f"{name} (ms)" for name in _FIGURES.values()]
    yield _line([*_COLUMNS, *heads, *(f"replicas' {head}" for head in heads)])
    yield "|" + "---|" * (len(_COLUMNS) + 2 * len(heads))
    found = {(row["tasks_per_instance"], row["token2wav_gpus"], row["placement"]): row for row in rows}
    for each, num_token2wavs in sorted({key[:2] for key in found}):
        apart, replicas = (found.get((each, num_token2wavs, name)) for name in ("apart", "replicas"))
        tasks_per_gpu = each * INSTANCES_PER_GPU * num_token2wavs / (num_token2wavs + 1)
        yield _line([num_token2wavs, each, f"{tasks_per_gpu:.2f}", *_figures(apart), *_figures(replicas)])


def _load(num_tasks: int) -> str:
    return f"closed:{num_tasks}:whole"


def _figures(row: Mapping[str, Any] | None) -> list[str]:
    """`-`: not measured, or too few for a p99."""
    measured = None if row is None else row["measured"]
    first = None if measured is None else measured["first_audio_ms"]
    return ["-" if first is None or first[name] is None else f"{first[name]:.2f}" for name in _FIGURES]


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
