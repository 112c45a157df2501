"""A run as one page that needs nothing else: table, latency against streams, distributions, what players had. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from voicegate.clients.bench import svg, table
from voicegate.clients.bench.judge import PREBUFFER_MS, heard, judge
from voicegate.clients.bench.plan import Outcome, Record
from voicegate.clients.bench.scenario import Kind, Scenario, parse
from voicegate.clients.python.timeline import play

FILE: Final = "report.html"
# Listeners of a scenario, in the timeline.
_NUM_SHOWN: Final = 48
# Fewer points are shown as they are: a line would tell of numbers of streams that nobody measured.
_MIN_JOINED: Final = 5
_PERCENTILES: Final = (("p50", False), ("p95", True))

STYLE: Final = Path(__file__).with_name("report.css").read_text(encoding="utf-8")


def page(report: Mapping[str, Any], records: Mapping[str, Sequence[Record]]) -> str:
    """`records`: by scenario, their times from its start."""
    rows = {name: row for name, row in report["scenarios"].items() if row is not None}
    parts = [
        "<h1>voicegate bench</h1>",
        _environment(report),
        "<h2>Figures</h2>",
        f"<pre>{escape(_table(rows))}</pre>",
        _sustained(report),
        _headed("First audio against the number of streams", against_streams(rows)),
        _distributions(records),
        *_timelines(records),
    ]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>voicegate bench</title>'
    body = "".join(parts)
    return f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>{body}</body></html>\n'


def _environment(report: Mapping[str, Any]) -> str:
    shown = {**report.get("target", {}), **report["environment"]}
    cells = "".join(
        f"<tr><th>{escape(name.replace('_', ' '))}</th><td>{escape(str(value))}</td></tr>"
        for name, value in shown.items()
        if value is not None
    )
    return f"<details open><summary>Measured on</summary><table>{cells}</table></details>"


def _table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    return "\n".join([table.heading(), *(line for name, row in rows.items() for line in table.lines(name, row))])


def _sustained(report: Mapping[str, Any]) -> str:
    found = report.get("sustained")
    if found is None:
        return ""
    more = ", the most that were tried" if found["is_limit"] else ""
    objective = (
        f"first audio p95 within {found['first_audio_p95_ms']:g} ms, C100 of {found['c100']:.1%} "
        f"and RTF p99 under {found['rtf_p99']:g}"
    )
    streams = f"<b>{found['num_streams']} streams</b>{more} of {escape(found['form'])}"
    return f"<p>Sustained: {streams}, with {objective}.</p>"


def _family(scenario: Scenario) -> str:
    """Whose figures are joined by a line: one stream alone is a load of live ones, too."""
    if scenario.kind is Kind.MIXED:
        return str(scenario.kind.value)
    kind = Kind.LIVE if scenario.kind is Kind.ALONE else scenario.kind
    if scenario.writer.words_per_s is None:
        return f"{kind.value}, whole text"
    pauses = ", uneven" if scenario.writer.has_jitter else ""
    return f"{kind.value}, {scenario.writer.words_per_s:g} words/s{pauses}"


def _headed(heading: str, chart: str) -> str:
    return f"<h2>{heading}</h2>{chart}" if chart else ""


def against_streams(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """A chart of first audio for each kind of load that was measured with several numbers of streams; "": of none."""
    families: dict[str, list[tuple[int, Mapping[str, Any]]]] = defaultdict(list)
    for name, row in rows.items():
        scenario = parse(name)
        if row["first_audio_ms"] is not None:
            families[_family(scenario)].append((scenario.num_streams, row))
    series: list[svg.Series] = []
    for colour, (family, measured) in enumerate(item for item in families.items() if len(item[1]) > 1):
        ordered = sorted(measured, key=lambda each: each[0])
        series += [
            svg.Series(
                f"{family}: {name}",
                [(num, row["first_audio_ms"][name]) for num, row in ordered],
                colour,
                is_dashed=is_dashed,
                has_dots=True,
                is_joined=len(ordered) >= _MIN_JOINED,
            )
            for name, is_dashed in _PERCENTILES
        ]
    if not series:
        return ""
    numbers = [num for each in series for num, _ in each.points]
    highest = max(value for each in series for _, value in each.points)
    x = svg.Axis("streams", min(numbers), max(numbers), is_log=max(numbers) > 8 * min(numbers))
    return svg.line_chart(
        series, x, svg.Axis("first audio, ms", 0, highest * 1.05), title="First audio against the number of streams"
    )


def _distributions(records: Mapping[str, Sequence[Record]]) -> str:
    series: list[svg.Series] = []
    for colour, (name, told) in enumerate(records.items()):
        times_ms = sorted(each.first_audio_ms for record in told if (each := judge(record)) is not None)
        if times_ms:
            points = [(time_ms, (rank + 1) / len(times_ms)) for rank, time_ms in enumerate(times_ms)]
            series.append(svg.Series(name, [(times_ms[0], 0.0), *points], colour))
    if not series:
        return ""
    low = min(max(each.points[0][0], 1.0) for each in series)
    high = max(each.points[-1][0] for each in series)
    x = svg.Axis("first audio after the first text, ms", low, max(high, low * 1.01), is_log=high > 8 * low)
    chart = svg.line_chart(series, x, svg.Axis("share of turns", 0, 1), title="Distribution of the time to first audio")
    return f"<h2>Distribution</h2>{chart}"


def _timelines(records: Mapping[str, Sequence[Record]]) -> list[str]:
    parts = [
        "<h2>What players had</h2>",
        "<p>A listener each line: grey from the first text to the first audio, blue while a player with "
        f"{PREBUFFER_MS} ms of prebuffer plays, red while it has nothing, dark where the listener interrupts.</p>",
    ]
    for name, told in records.items():
        shown = sorted(told, key=lambda record: record.due_s)[:_NUM_SHOWN]
        if shown:
            bars = [bar for row, record in enumerate(shown) for bar in _bars(row, record)]
            end_s = max(bar.end for bar in bars)
            x = svg.Axis("s", min(record.due_s for record in shown), end_s)
            parts += [f"<h3>{escape(name)}</h3>", svg.timeline(bars, len(shown), x, title=f"Playback in {name}")]
    return parts


def _bars(row: int, record: Record) -> list[svg.Bar]:
    title = f"{record.outcome.value} {record.message}".strip()
    arrivals = heard(record.arrivals)
    end_s = record.ended_s if record.cancelled_s is None else record.cancelled_s
    if not arrivals:
        kind = "gap" if record.outcome is not Outcome.DONE else "wait"
        return [svg.Bar(row, record.sent_s, end_s, kind, title)]
    playing_s = play(arrivals, PREBUFFER_MS).start_s
    bars = [svg.Bar(row, record.sent_s, playing_s, "wait", f"{(arrivals[0].arrived_s - record.sent_s) * 1000:.0f} ms")]
    for arrival in arrivals:
        if arrival.arrived_s > playing_s:
            gap_ms = (arrival.arrived_s - playing_s) * 1000
            bars.append(svg.Bar(row, playing_s, arrival.arrived_s, "gap", f"{gap_ms:.0f} ms without sound"))
            playing_s = arrival.arrived_s
        after_s = playing_s + arrival.duration_48k / 48_000
        if bars[-1].kind == "play":
            bars[-1] = svg.Bar(row, bars[-1].begin, after_s, "play", title)
        else:
            bars.append(svg.Bar(row, playing_s, after_s, "play", title))
        playing_s = after_s
    if record.cancelled_s is None:
        return bars
    kept = [bar for bar in bars if bar.begin < end_s]
    last = kept[-1]
    kept[-1] = svg.Bar(row, last.begin, min(last.end, end_s), last.kind, last.title)
    return [*kept, svg.Bar(row, end_s, end_s, "stop", "interrupted")]
