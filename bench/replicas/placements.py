"""Two ways to use the same GPUs at equal load: whole engines on each, or the LLM on the first, the rest on the others.

Loads are those of NVIDIA's recipe: so many streams a GPU, each taking audio as fast as it is made and followed by the
next; and mixed ones. A server is started for each way, one after the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voicegate.bench.replicas import scale
from voicegate.clients.bench.table import LOST

CPU = "cpu"

_HEADING = (("placement", 26), ("a GPU", 7), ("load", 16), ("mean", 9), ("p50", 9), ("p90", 9), ("p95", 9), ("p99", 9))
_REST = (("RTF", 9), ("audio-s/s", 11), ("lost", 6))


@dataclass(frozen=True, slots=True)
class Placement:
    name: str
    where: tuple[str, ...]  # flags of `voicegate serve`


def placements(gpus: Sequence[str]) -> list[Placement]:
    """Raises ValueError for a single GPU."""
    if len(gpus) < 2:
        raise ValueError("two GPUs or more are needed: one for the LLM, the others for token2wav")
    devices = [gpu if gpu == CPU else f"cuda:{gpu}" for gpu in gpus]
    apart = ("--llm-device", devices[0], "--token2wav-devices", ",".join(devices[1:]))
    return [
        Placement(f"replicas {','.join(gpus)}", ("--gpus", ",".join(gpus))),
        Placement(f"LLM {gpus[0]}, token2wav {','.join(gpus[1:])}", apart),
    ]


def measure(
    model: Path, gpus: Sequence[str], streams: Sequence[int], mixed: Sequence[int], flags: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """A row for each way and load, both loads being streams a GPU. Raises ValueError and CalledProcessError."""
    loads = [(each, f"closed:{each * len(gpus)}:whole") for each in streams]
    loads += [(each, f"mixed:{each * len(gpus)}") for each in mixed]
    most = len(gpus) * max((each for each, _ in loads), default=0)
    for placement in placements(gpus):
        found = scale.serve(model, placement.where, [load for _, load in loads], max_streams=most, flags=flags)
        for each, load in loads:
            yield {"placement": placement.name, "streams_per_gpu": each, "load": load, "measured": found[load]}


def heading() -> str:
    return "".join(name.ljust(width) for name, width in _HEADING[:1]) + "".join(
        name.rjust(width) for name, width in (*_HEADING[1:], *_REST)
    )


def line(row: Mapping[str, Any]) -> str:
    """First audio in ms; RTF as the recipe has it: time of all divided by audio of all."""
    cells = [row["streams_per_gpu"], row["load"]]
    measured = row["measured"]
    if measured is None:
        cells.append("left out")
    else:
        first = measured["first_audio_ms"]
        cells += ["-" if first is None or first[name] is None else f"{first[name]:.0f}" for name, _ in _HEADING[3:]]
        lost = sum(measured["outcomes"][each.value] for each in LOST)
        cells += [measured["wall_per_audio"], measured["audio_s_per_s"], lost]
    widths = [width for _, width in (*_HEADING[1:], *_REST)]
    return str(row["placement"]).ljust(_HEADING[0][1]) + "".join(
        str(cell).rjust(width) for cell, width in zip(cells, widths, strict=False)
    )
