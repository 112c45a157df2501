"""The table of live streams beside jobs, as docs/measured.md has it. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from voicegate.bench.cells import MISSING, commit, span
from voicegate.clients.bench.table import LOST

_HEAD: Final = (
    *("load", "jobs", "windows", "turns", "live", "first message p50, ms", "p95, ms", "C50, %", "C100, %"),
    *("longest gap, ms", "lost", "GPU busy, %", "power, W", "audio-s/s of jobs", "of all"),
)


def jobs_table(run: Mapping[str, Any]) -> list[str]:
    """From bench.jobs. A cell has the least and the greatest of its windows."""
    machine = run["environment"]
    where = machine.get("gpu") or f"{machine['num_cores']} cores of an {machine['cpu']}"
    kinds: dict[tuple[str | None, bool], list[Mapping[str, Any]]] = {}
    for window in run["windows"]:
        if window["waiting_parts"] != 0:  # else the queue had run empty
            kinds.setdefault((window["load"], window["has_jobs"]), []).append(window)
    return [
        f"`voicegate serve {' '.join(['--jobs-dir', '...', *run['serve']])}`: {where}, torch {machine['torch']}, "
        f"{commit(run)}, {len(run['voices'])} voices. Windows of {run['duration_s']:g} s without jobs and with them, "
        "in turn. Cells have the least and the greatest of the windows.",
        "",
        f"| {' | '.join(_HEAD)} |",
        f"|{'---|' * len(_HEAD)}",
        *(
            f"| {load or 'none'} | {'yes' if has_jobs else 'no'} | {len(windows)} | {' | '.join(_cells(windows))} |"
            for (load, has_jobs), windows in kinds.items()
        ),
    ]


def _cells(windows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    heard = [window for window in windows if window["load"] is not None]
    firsts = [first for window in heard if (first := window["first_audio_ms"])]
    yield str(sum(first["num"] for first in firsts)) if heard else MISSING
    yield span([window["live"] for window in heard])
    yield from (span([first[key] for first in firsts]) for key in ("p50", "p95"))
    for key in ("c50", "c100"):
        yield span([100 * window[key] for window in heard if window[key] is not None], digits=1)
    yield span([window["gap_ms"]["longest"] for window in heard])
    yield str(sum(window["outcomes"][each.value] for window in heard for each in LOST)) if heard else MISSING
    for key in ("utilisation_percent", "power_w"):
        yield span([window["gpu"][key] for window in windows if window["gpu"]])
    for key in ("job_audio_s_per_s", "made_audio_s_per_s"):
        yield span([window[key] for window in windows if window[key] is not None])
