"""A whole run as the command wants it: scenarios or a ramp, progress as it goes, files at the end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voicegate.clients.bench import environment, html_report, table
from voicegate.clients.bench.client_run import BenchFailed
from voicegate.clients.bench.inquiry import describe
from voicegate.clients.bench.plan import Target
from voicegate.clients.bench.ramp import Objective, largest
from voicegate.clients.bench.results import Results
from voicegate.clients.bench.scenario import Kind, Scenario, UnknownScenario, parse
from voicegate.clients.bench.schedule import Settings
from voicegate.clients.bench.session import Bench


@dataclass(frozen=True, slots=True)
class Ramp:
    """Scenarios of one kind with ever more streams. Raises UnknownScenario for a kind that has no number of them."""

    form: str  # mixed, live:20j, closed
    max_streams: int
    objective: Objective

    def __post_init__(self) -> None:
        if self.scenario(1).kind is Kind.ALONE:
            raise UnknownScenario(f"{self.form!r} is of one stream; a ramp is of closed, live or mixed")

    def scenario(self, num_streams: int) -> Scenario:
        kind, _, writer = self.form.partition(":")
        return parse(f"{kind}:{num_streams}" + (f":{writer}" if writer else ""))


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run tells of itself."""

    line: Callable[[str], None]
    share: Callable[[str, float], None]  # of the scenario that runs


async def run(
    target: Target,
    settings: Settings,
    scenarios: Sequence[Scenario],
    ramp: Ramp | None,
    directory: Path,
    progress: Progress,
    *,
    server_pid: int | None = None,
) -> Path:
    """The report's path. Raises BenchFailed, also where no turn was heard; what was measured is in `directory`."""
    results = Results(directory, environment.describe())
    asked = {"url": target.url, "dialect": target.dialect, "codec": target.codec}
    results.report |= {"target": asked | await describe(target)}
    results.report |= settings.conditions()
    bench = Bench(
        target,
        settings,
        server_pid=server_pid,
        on_share=progress.share,
        on_records=lambda scenario, start_s, records: results.add_records(str(scenario), start_s, records),
    )
    progress.line(table.heading())
    path = directory / html_report.FILE

    def save() -> None:
        results.save()
        path.write_text(html_report.page(results.report, results.records), encoding="utf-8")

    try:
        rows = [await _measure(bench, scenario, results, progress) for scenario in scenarios]
        if ramp is not None:
            await _climb(bench, ramp, results, progress)
    except BaseException:  # an interrupt, too
        if results.report["scenarios"]:
            save()
            progress.line(f"what was measured by then is in {path}")
        raise
    save()
    if rows and not any(row["first_audio_ms"] for row in rows):
        raise BenchFailed(f"no turn was heard; {path} has what came of each")
    return path


async def _measure(bench: Bench, scenario: Scenario, results: Results, progress: Progress) -> dict[str, Any]:
    row = await bench.measure(scenario)
    results.add_row(str(scenario), row)
    for line in table.lines(str(scenario), row):
        progress.line(line)
    return row


async def _climb(bench: Bench, ramp: Ramp, results: Results, progress: Progress) -> None:
    async def holds(num_streams: int) -> bool:
        row = await _measure(bench, ramp.scenario(num_streams), results, progress)
        if num_streams == 1 and not row["first_audio_ms"]:
            raise BenchFailed("no turn was heard, of one stream alone: that is no matter of how many")
        missed = ramp.objective.misses(row)
        if missed is not None:
            progress.line(f"  ! {num_streams} streams are too many: {missed}")
        return missed is None

    num_streams = await largest(holds, at_most=ramp.max_streams)
    results.report["sustained"] = {
        "form": ramp.form,
        "num_streams": num_streams,
        "is_limit": num_streams == ramp.max_streams,
        "first_audio_p95_ms": ramp.objective.first_audio_p95_ms,
        "c100": ramp.objective.c100,
        "rtf_p99": ramp.objective.rtf_p99,
    }
    more = " (the most that were tried)" if num_streams == ramp.max_streams else ""
    progress.line(f"sustained: {num_streams} streams{more} of {ramp.form}")
