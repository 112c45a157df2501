"""Writes the numbers of README.md and docs/measured.md from bench/results.

    python -m voicegate.bench.table

Replaces what stands between `<!-- NAME -->` and `<!-- /NAME -->`: in README.md headline and felt, what was measured
through sockets on a GPU with the code of today (socket-h200.json); in docs/measured.md all else: socket-h100.json, on
another GPU; replicas-scale-2xh200.json, on one GPU and on two; engine-h200.json, which explains them; then a CPU's.
The table of runs beside each other there is typed by hand, and a test compares it with their files.
docs/images/latency.svg is drawn of latency-h200.json, first audio at many numbers of streams, or else of the former.
"""

import argparse
import json
from collections.abc import Sequence
from typing import Any, Final

from voicegate.bench.engine.flattery import flattery
from voicegate.bench.engine.report import best_throughput, most_sustained
from voicegate.bench.engine.texts import Lengths
from voicegate.bench.environment import REPOSITORY
from voicegate.bench.socket import ALONE_FLATTERY
from voicegate.clients.bench import html_report
from voicegate.clients.bench.judge import PREBUFFER_MS
from voicegate.clients.bench.scenario import Kind, parse
from voicegate.clients.bench.table import LOST, MAX_SEND_LAG_MS

_RESULTS: Final = REPOSITORY / "bench" / "results"
_SOCKETS: Final = ("socket-h200.json",)
_ELSEWHERE: Final = "socket-h100.json"
_PAGES: Final = {"README.md": ("headline", "felt"), "docs/measured.md": ("bench",)}
_SCALE: Final = "replicas-scale-2xh200.json"
_THREADS: Final = ("event_loop", "busiest_other_thread")
_PLAIN_LLMS: Final = (
    ("transformers", "where Hugging Face's Qwen2 decodes, as in the reference"),
    ("lean", "where the engine's own network does"),
)


def results(name: str) -> dict[str, Any] | None:
    """None: that was not measured."""
    path = _RESULTS / name
    if not path.exists():
        return None
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def picture(run: dict[str, Any]) -> str:
    """First audio against the number of streams, as SVG that stands alone; "": not measured with several numbers."""
    rows = {name: row for name, row in run["scenarios"].items() if row is not None}
    drawn, tag, rest = html_report.against_streams(rows).partition(">")
    paper = "svg { background: var(--paper); font-family: system-ui, sans-serif }"
    return f"{drawn}{tag}<style>{html_report.STYLE}{paper}</style>{rest}\n" if drawn else ""


def socket_headline(runs: Sequence[dict[str, Any]]) -> str | None:
    """The headline for users, through sockets; times of the first run. None: one stream alone was not measured."""
    run = runs[0]
    rows = {name: row for name, row in run["scenarios"].items() if row is not None}
    parts = []
    if "alone:whole" in rows:
        parts.append(f"{rows['alone:whole']['first_audio_ms']['p50']:.0f} ms after a text is given whole")
    if "alone:20" in rows:
        parts.append(f"{rows['alone:20']['first_audio_ms']['p50']:.0f} ms after the first of 20 words a second")
    if not parts:
        return None
    most = [f"{num} streams of {text}" for text, num in _most_held(runs).items() if num]
    sustained = f"; {' or '.join(most)} without a gap of 100 ms" if most else ""
    weights = ", with generated weights of the released size (they speak noise; speed is the same)"
    return (
        f"**First audio {' and '.join(parts)}{sustained}**, through sockets as shipped, on one "
        f"{run['environment']['gpu']}{weights if 'generated' in run['voices'][0] else ''}."
    )


def _most_held(runs: Sequence[dict[str, Any]]) -> dict[str, int]:
    """The largest number of live streams, by how their text comes, where no run had a gap of 100 ms or lost anybody.

    No more than were live in the mean: a load's name says what it was meant to be.
    """
    most = {"whole texts": 0, "text at 20 words a second": 0}
    for name in {name for run in runs for name in run["scenarios"]}:
        kind, _, rest = name.partition(":")
        num, _, writer = rest.partition(":")
        rows = [row for run in runs if (row := run["scenarios"].get(name)) is not None]
        if kind == "live" and writer in ("whole", "20") and rows and all(_is_held(row) for row in rows):
            text = "whole texts" if writer == "whole" else "text at 20 words a second"
            most[text] = max(most[text], min(int(num), *(round(row["live"]) for row in rows)))
    return most


def _is_held(row: dict[str, Any]) -> bool:
    return bool(row["c100"] == 1.0 and not sum(row["outcomes"][each.value] for each in LOST))


def gpu_headline(run: dict[str, Any]) -> str:
    """One sentence of what the run has measured."""
    scenarios = run["scenarios"]
    parts = []
    if "first-audio" in scenarios:
        parts.append(f"first audio {scenarios['first-audio']['first_audio_ms']['p50']:.0f} ms after a short text")
    num_sustained, rate = most_sustained(scenarios), best_throughput(scenarios)
    if num_sustained:
        parts.append(f"{num_sustained} streams sustained in real time")
    if rate:
        parts.append(f"{rate:.0f} seconds of audio a second")
    return f"**{_capitalised(', '.join(parts))}**, on one {run['environment']['gpu']}, {_weights(run)}."


def socket_tables(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Tables of bench.socket."""
    lines = []
    for index, run in enumerate(runs):
        lines += _socket_table(run, "Again, t" if index else "T", docs="docs/")
    if not runs:
        return []
    phrases = list(runs[0]["flattery"])
    if ALONE_FLATTERY not in phrases and any(parse(name).kind is Kind.ALONE for name in runs[0]["scenarios"]):
        phrases.append(ALONE_FLATTERY)  # files up to 2026-11-27 do not say it
    return [*lines, f"What flatters these figures: {'; '.join(phrases)}."]


def scale_table(run: dict[str, Any]) -> list[str]:
    """Table of bench.replicas scale: one load a GPU, on one and on all."""
    machine = run["environment"]
    lines = [
        f"Engine processes behind one front (`--gpus`), {machine['gpu']}, torch {machine['torch']}, {_commit(run)}; "
        "mixed loads: half of the texts whole, the others at 10 to 40 words a second with jitter; a fifth is "
        "interrupted:",
        "",
        "| GPUs | live streams | turns | first audio p50 / p95 / p99 | C50 / C100 | longest gap | lost | audio-s/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    measured = [(each, row) for each in run["rows"] if (row := each["loaded"]) is not None]
    lines += [
        f"| {each['gpus']} | {each['streams']} | {_felt(row)} | {row['audio_s_per_s']:.0f} |" for each, row in measured
    ]
    return [*lines, ""]


def _socket_table(run: dict[str, Any], beginning: str, *, docs: str) -> list[str]:
    """`docs`: the way from its page to that folder."""
    machine = run["environment"]
    served = f"`voicegate serve {' '.join(run['serve'])}`" if run["serve"] else "`voicegate serve` as shipped"
    lines = [
        f"{beginning}hrough sockets, against {served}: {_gpus(run)}, torch {machine['torch']}, {_commit(run)}; "
        f"{len(run['voices'])} voices; first audio counts from the first text sent; C50, C100: of a player without a "
        f"prebuffer, longest gap: of one with {PREBUFFER_MS} ms ([what the loads are]({docs}operations/measuring.md)).",
        "",
        "| load | live | turns | first audio p50 / p95 / p99 | C50 / C100 | longest gap | lost | event loop, engine "
        "| power |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in run["scenarios"].items():
        if row is not None and row["first_audio_ms"]:
            lines.append(_socket_row(name, row))
    late = [name for name, row in run["scenarios"].items() if row is not None and row["clients"]["are_late"]]
    if late:
        lines += ["", f"The clients themselves were late in {', '.join(late)}."]
    behind = [
        f"{name} ({lag_ms:.0f} ms)"
        for name, row in run["scenarios"].items()
        if row is not None and (lag_ms := (row["send_lag_ms"] or {"p95": 0.0})["p95"]) > MAX_SEND_LAG_MS
    ]
    if behind:
        lines += ["", f"Texts were sent late, and first audio counts from then; p95: {', '.join(behind)}."]
    return [*lines, ""]


def _commit(run: dict[str, Any]) -> str:
    """Where files differed from it, that is said."""
    changed = ", with changes" if run["environment"].get("is_dirty") else ""
    return f"commit {run['environment']['commit']}{changed}"


def _gpus(run: dict[str, Any]) -> str:
    flags = run["serve"]
    num = len(flags[flags.index("--gpus") + 1].split(",")) if "--gpus" in flags else 1
    return f"{'one' if num == 1 else num} {run['environment']['gpu']}"


def _socket_row(name: str, row: dict[str, Any]) -> str:
    cpu, gpu = row["server_cpu"] or {}, row["gpu"] or {}
    # Files up to 2026-11-27 count what one listener alone still had to play as more of them.
    live = 1 if parse(name).kind is Kind.ALONE else row["live"]
    busy = " / ".join("-" if cpu.get(key) is None else f"{100 * cpu[key]:.0f} %" for key in _THREADS)
    power = "-" if "power_w" not in gpu else f"{gpu['power_w']:.0f} W"
    return f"| {name} | {live:.0f} | {_felt(row)} | {busy} | {power} |"


def _felt(row: dict[str, Any]) -> str:
    """Cells: turns, first audio, C50 and C100, longest gap, lost."""
    first, lost = row["first_audio_ms"], sum(row["outcomes"][each.value] for each in LOST)
    return f"{first['num']} | {_times(first)} ms | {_shares(row)} | {row['gap_ms']['longest']:.0f} ms | {lost}"


def _times(first: dict[str, float | None]) -> str:
    return " / ".join("-" if first[key] is None else f"{first[key]:.0f}" for key in ("p50", "p95", "p99"))


def _shares(row: dict[str, Any]) -> str:
    return " / ".join("-" if row[key] is None else f"{100 * row[key]:.1f} %" for key in ("c50", "c100"))


def gpu_table(run: dict[str, Any]) -> list[str]:
    machine = run["environment"]
    lines = [
        f"One {machine['gpu']}, torch {machine['torch']}, {_commit(run)}, {_weights(run)}; at the engine "
        f"seam, no sockets; utterances of {_span(run)}; text {_pace(run)}. C50, C100: share of listeners whose player, "
        "without a prebuffer, never waited longer than 50 or 100 ms.",
        "",
        "| load | utterances | first audio p50 / p95 / p99 | C50 / C100 | RTF p50 | audio-s/s |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in run["scenarios"].items():
        if not row.get("first_audio_ms") or name.startswith("cancel"):
            continue
        times, shares = _times(row["first_audio_ms"]), _shares(row)
        rtf = "-" if row["rtf"] is None else f"{row['rtf']['p50']:.3f}"
        rate = "-" if row["audio_s_per_s"] is None else f"{row['audio_s_per_s']:.0f}"
        lines.append(f"| {name} | {row['num']} | {times} ms | {shares} | {rtf} | {rate} |")
    lines += _unserved(run["scenarios"])
    return [*lines, "", f"What flatters these figures: {'; '.join(flattery(run))}.", "", *_gpu_remarks(run)]


def _unserved(scenarios: dict[str, Any]) -> list[str]:
    """Those whom the table's figures leave out, or tell of too well."""
    kinds = (("num_failed", "failed"), ("num_cut_off", "cut off"))
    told = {
        name: ", ".join(f"{row[key]} {word}" for key, word in kinds if row.get(key)) for name, row in scenarios.items()
    }
    named = [f"{name} {numbers}" for name, numbers in told.items() if numbers]
    return ["", f"Not served or not to the end: {'; '.join(named)}."] if named else []


def _gpu_remarks(run: dict[str, Any]) -> list[str]:
    remarks = []
    for name, row in run["scenarios"].items():
        if row.get("cancel_ms"):
            times = row["cancel_ms"]
            remarks.append(f"Cancel to slot free ({name}): p50 {times['p50']:.1f} ms, p95 {times['p95']:.1f} ms.")
        if "mib_per_stream_second" in row:
            remarks.append(f"GPU memory: {row['mib_per_stream_second']:.0f} MiB a second of context and stream.")
    ratios = run.get("ratios", {})
    compared = [f"{better} {words}" for llm, words in _PLAIN_LLMS if (better := _better(ratios.get(llm, {})))]
    if compared:
        remarks.append(
            "Against the plain way on the same weights in the same run (one stream at a time, whole-prefix "
            f"recomputation, eager, {run['plain']['dtype']}; bench/plain/system.py): {'; '.join(compared)}."
        )
    return [" ".join(remarks), ""] if remarks else []


def _better(ratios: dict[str, float | None]) -> str:
    """The better one of two measurements."""
    named = (("first_audio", "first audio"), ("throughput", "throughput"))
    return ", ".join(f"{word} {ratios[key]:.0f} times better" for key, word in named if ratios.get(key))


def _weights(run: dict[str, Any]) -> str:
    """A model that never stops has not learned when to: nobody may take its numbers for a voice's."""
    if run["lengths"] == Lengths.LIMIT.value:
        return f"the model {run['model']}, whose weights are generated (its speech is noise; speed is the same)"
    return f"the model {run['model']}"


def _span(run: dict[str, Any]) -> str:
    shortest, longest = run["load"]["wanted_audio_s"]
    return f"{shortest:g} to {longest:g} s"


def _pace(run: dict[str, Any]) -> str:
    rate = run["load"]["tokens_per_s"]
    return "given whole" if rate is None else f"at {rate:g} tokens a second"


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def headline(report: dict[str, Any]) -> str:
    machine, short, paragraph = report["environment"], report["short"], report["paragraph"]
    return (
        f"**First audio {short['first_audio_ms']['p50']:.0f} ms after a short sentence is given, real-time factor "
        f"{paragraph['rtf']['p50']:.2f}**, on {machine['num_cores']} cores of an {machine['cpu']} without a GPU, with "
        "the embedded tiny model, at the engine seam, without sockets."
    )


def speed_table(report: dict[str, Any]) -> list[str]:
    machine, short = report["environment"], report["short"]
    where = f"{machine['num_cores']} cores of an {machine['cpu']}, torch {machine['torch']}, {_commit(report)}"
    lines = [
        f"One utterance at a time, text given whole, {short['first_audio_ms']['num']} runs each, float32, no sockets; "
        f"{where}:",
        "",
        "| text | first audio p50 / p95 | second chunk early by at least | real-time factor p50 | LLM, flow, vocoder |",
        "|---|---|---|---|---|",
    ]
    for name in ("short", "paragraph"):
        figures = report[name]
        first, stages = figures["first_audio_ms"], figures["stages"]
        parts = ", ".join(f"{stages[stage]['rtf']:.3f}" for stage in ("llm", "flow", "vocoder"))
        seconds = figures["audio_s"] / first["num"]
        lines.append(
            f"| {name}, {seconds:.1f} s | {first['p50']:.0f} / {first['p95']:.0f} ms "
            f"| {figures['second_chunk_headroom_ms_worst']:.0f} ms | {figures['rtf']['p50']:.2f} | {parts} |"
        )
    return lines


def quality_line(report: dict[str, Any]) -> str:
    rates = ", ".join(
        f"{row['voice']} {row['mode']} {row['wer']:.3f} ({row['errors']}/{row['words']})" for row in report["results"]
    )
    return f"Word error rate by pocketsphinx over 20 everyday sentences, one seed each, {_commit(report)}: {rates}."


def replace_section(text: str, name: str, lines: list[str]) -> str:
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, rest = text.split(begin)
    return "\n".join([f"{before}{begin}", *lines, f"{end}{rest.split(end)[1]}"])


def sections(
    gpu: dict[str, Any] | None,
    cpu: dict[str, Any],
    quality: dict[str, Any],
    sockets: Sequence[dict[str, Any]] = (),
    scale: dict[str, Any] | None = None,
    elsewhere: dict[str, Any] | None = None,
) -> dict[str, list[str]]:
    """Lines of both pages by the name of their section.

    `sockets`: of `serve` as shipped, by one server each; `elsewhere`: the same on another GPU.
    """
    felt = socket_headline(sockets) if sockets else None
    explained = gpu_headline(gpu) if gpu is not None else None
    first = [line, ""] if (line := felt or explained) is not None else []
    others = [
        *(_socket_table(elsewhere, "On another GPU, t", docs="") if elsewhere is not None else []),
        *(scale_table(scale) if scale is not None else []),
        *(gpu_table(gpu) if gpu is not None else []),
    ]
    return {
        "headline": [*first, headline(cpu)],
        "felt": socket_tables(sockets),
        "bench": [*others, *speed_table(cpu), "", quality_line(quality)],
    }


def pages() -> dict[str, str]:
    """The pages as they are to be, by their paths in the repository."""
    cpu, quality = results("engine-cpu.json"), results("quality.json")
    if cpu is None or quality is None:
        raise SystemExit(
            f"{_RESULTS} lacks engine-cpu.json or quality.json: see docs/measured.md for the commands that write them"
        )
    sockets = [run for name in _SOCKETS if (run := results(name)) is not None]
    parts = sections(
        results("engine-h200.json"), cpu, quality, sockets, scale=results(_SCALE), elsewhere=results(_ELSEWHERE)
    )
    texts = {page: (REPOSITORY / page).read_text() for page in _PAGES}
    for page, names in _PAGES.items():
        for name in names:
            texts[page] = replace_section(texts[page], name, parts[name])
    return texts


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for page, text in pages().items():
        (REPOSITORY / page).write_text(text)
    swept = results("latency-h200.json") or results("socket-h200.json")
    if swept is not None and (drawn := picture(swept)):
        (REPOSITORY / "docs" / "images" / "latency.svg").write_text(drawn)


if __name__ == "__main__":
    main()
