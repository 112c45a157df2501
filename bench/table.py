"""Writes the numbers of README.md and docs/measured.md from bench/results.

    python -m voicegate.bench.table

Replaces what stands between `<!-- NAME -->` and `<!-- /NAME -->`. README.md has the headline: three loads of
socket-h200-latest.json, one of socket-cpu.json, and the mixed load that three hosts held. It has two sentences of other
servers (peers-h200.json). docs/measured.md has a table a GPU (socket-h200.json, socket-h100.json), of several GPUs
(replicas-scale-2xh200.json), of jobs beside live streams (jobs-h200.json), of the engine alone (engine-h200.json), of a
CPU (engine-cpu.json, socket-cpu.json, socket-cpu-avx2.json, quality.json), of other servers (peers-h200.json), of vLLM
as the LLM backend (vllm-h200.json, vllm-ours-h200.json), of upstream's classes (peers-cpu.json) and of what flatters
these figures.
The table of runs beside each other there is typed by hand, and a test compares it with their files.
docs/images/latency.svg is drawn of latency-h200.json, first audio at many numbers of streams, or else of the former.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from voicegate.bench.cells import commit, lateness, middle, shares
from voicegate.bench.cpu_tables import cpu_socket_table, quality_table, speed_table
from voicegate.bench.environment import REPOSITORY
from voicegate.bench.jobs_table import jobs_table
from voicegate.bench.peers import report
from voicegate.bench.socket import ALONE_FLATTERY
from voicegate.bench.vllm_table import vllm_table
from voicegate.clients.bench import html_report
from voicegate.clients.bench.scenario import Kind, parse
from voicegate.clients.bench.table import LOST

_RESULTS: Final = REPOSITORY / "bench" / "results"
_SOCKET: Final = "socket-h200.json"
_LATEST: Final = "socket-h200-latest.json"  # of fewer loads, from the newest commit that ran there
_ELSEWHERE: Final = "socket-h100.json"
_HOSTS: Final = (_SOCKET, "socket-h200-616f22e.json", "socket-h200-07ebc7c.json")  # with a mixed load of 500
_CPU_SOCKET: Final = "socket-cpu.json"
_PAGES: Final = {
    "README.md": ("headline", "beside"),
    "docs/measured.md": ("gpu", "other-gpu", "gpus", "jobs", "engine", "cpu", "peers", "vllm", "laptop", "caveats"),
}
# The README has these loads of a GPU; all else is in docs/measured.md.
_HEADLINES: Final = (
    ("one stream, text given whole", "alone:whole"),
    ("128 streams, text at 20 words a second", "live:128:20"),
    ("400 streams, text at 20 words a second", "live:400:20"),
)
_NOT_ON_A_GPU: Final = "**It was not run on a GPU yet.**"
_VLLM: Final = {"vllm": "vllm-h200.json", "cuda": "vllm-ours-h200.json"}  # by the LLM's backend
_SCALE: Final = "replicas-scale-2xh200.json"
_THREADS: Final = ("event_loop", "busiest_other_thread")
_PLAIN_LLMS: Final = (
    ("transformers", "Hugging Face's Qwen2, as in the reference"),
    ("lean", "the engine's own network"),
)


Found = Callable[[str], dict[str, Any] | None]  # a result by its file's name; None: that was not measured


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


def mixed_claim(runs: Sequence[dict[str, Any]]) -> list[str]:
    """The largest mixed load that the slowest host held, and how it did at larger ones. Empty: one held none."""
    if not runs or any(run.get("sustained_mixed_streams") is None for run in runs):
        return []
    slowest = min(runs, key=lambda run: run["sustained_mixed_streams"])
    held = slowest["sustained_mixed_streams"]
    (_, row), *larger = sorted((num, row) for num, row in _mixed(slowest) if num >= held)
    where = f"{len(runs)} {slowest['environment']['gpu'].removeprefix('NVIDIA ')} hosts"
    told = [
        f"The slowest of {where} held a mixed load of {held} streams: first message {middle(row['first_audio_ms'])}.",
        f"There {_within(row)} of turns had no wait over 100 ms, and none was lost.",
        *(f"With {num} streams it was {_within(other)}." for num, other in larger),
    ]
    return ["", " ".join(told)]


def _within(row: dict[str, Any]) -> str:
    return f"{100 * row['c100']:.1f} %"


def _mixed(run: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    for name, row in run["scenarios"].items():
        if row is not None and (scenario := parse(name)).kind is Kind.MIXED:
            yield scenario.num_streams, row


def beside(peers: dict[str, Any] | None) -> list[str]:
    """README's line of other servers."""
    told = [] if peers is None else list(report.sentences(peers))
    if not told:
        return [f"`python -m voicegate.bench.peers` measures voicegate beside vLLM-Omni on one card. {_NOT_ON_A_GPU}"]
    return [*told, "[The table](docs/measured.md#beside-other-servers) says what flatters whom."]


def headline(gpu: dict[str, Any] | None, cpu: dict[str, Any] | None) -> list[str]:
    """First audio through sockets, at three loads of a GPU and alone on a CPU. Empty: neither was measured."""
    runs = [(gpu, _HEADLINES), (cpu, (("one stream, text given whole, no GPU", "alone:whole"),))]
    rows = [
        f"| {words} | {_live(name, row)} | {middle(row['first_audio_ms'])} | {middle(row.get('audible_ms'))} "
        f"| {_machine(run)} |"
        for run, loads in runs
        for words, name in (loads if run is not None else ())
        if run is not None and (row := run["scenarios"].get(name)) is not None and row["first_audio_ms"]
    ]
    if not rows:
        return []
    weights = " The GPU's weights are generated at the released size: they speak noise, at equal speed."
    is_generated = gpu is not None and "generated" in gpu["voices"][0]
    return [
        "| load | streams live | first message, p50 / p95 | audible, p50 / p95 | on |",
        "|---|---|---|---|---|",
        *rows,
        "",
        "Times count from the first text sent, over loopback, to a warm server as shipped; a dash was not measured."
        f"{weights if is_generated else ''} [Quicker hosts, all loads and caveats](docs/measured.md).",
    ]


def _machine(run: dict[str, Any]) -> str:
    machine = run["environment"]
    where = machine.get("gpu") or f"{machine['num_cores']} cores of an {machine['cpu']}"
    model = "" if machine.get("gpu") else ", embedded tiny model"
    return f"{where}{model}, {commit(run)}"


def scale_table(run: dict[str, Any]) -> list[str]:
    """From bench.scale: one load a GPU, on one and on all."""
    machine = run["environment"]
    lines = [
        f"Engine processes behind one front (`--gpus`), {machine['gpu']}, torch {machine['torch']}, {commit(run)}. "
        "Loads are mixed: half of the texts whole, the others at 10 to 40 words a second with jitter. A fifth of the "
        "turns is interrupted.",
        "",
        "| GPUs | live streams | turns | first message p50 / p95 / p99 | C50 / C100 | longest gap | lost | audio-s/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    measured = [(each, row) for each in run["rows"] if (row := each["loaded"]) is not None]
    return lines + [
        f"| {each['gpus']} | {each['streams']} | {row['first_audio_ms']['num']} | {_times(row['first_audio_ms'])} ms "
        f"| {_heard(row)} | {row['audio_s_per_s']:.0f} |"
        for each, row in measured
    ]


def socket_table(run: dict[str, Any]) -> list[str]:
    """From bench.socket."""
    machine = run["environment"]
    served = f"`voicegate serve {' '.join(run['serve'])}`" if run["serve"] else "`voicegate serve` as shipped"
    lines = [
        f"Through sockets, against {served}: {_gpus(run)}, torch {machine['torch']}, {commit(run)}, "
        f"{len(run['voices'])} voices.",
        "",
        "| load | live | turns | first message p50 / p95 / p99 | audible p50 / p95 | C50 / C100 | longest gap | lost "
        "| event loop, engine | power |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        _socket_row(name, row) for name, row in run["scenarios"].items() if row is not None and row["first_audio_ms"]
    ]
    for sentence in lateness({name: row for name, row in run["scenarios"].items() if row is not None}):
        lines += ["", sentence]
    return lines


def _gpus(run: dict[str, Any]) -> str:
    flags = run["serve"]
    num = len(flags[flags.index("--gpus") + 1].split(",")) if "--gpus" in flags else 1
    return f"{'one' if num == 1 else num} {run['environment']['gpu']}"


def _socket_row(name: str, row: dict[str, Any]) -> str:
    cpu, gpu = row["server_cpu"] or {}, row["gpu"] or {}
    busy = " / ".join("-" if cpu.get(key) is None else f"{100 * cpu[key]:.0f} %" for key in _THREADS)
    power = "-" if "power_w" not in gpu else f"{gpu['power_w']:.0f} W"
    first = row["first_audio_ms"]
    times = f"{first['num']} | {_times(first)} ms | {middle(row.get('audible_ms'))}"
    return f"| {name} | {_live(name, row)} | {times} | {_heard(row)} | {busy} | {power} |"


def _live(name: str, row: dict[str, Any]) -> str:
    # Files up to 2026-11-27 count what one listener alone still had to play as more of them.
    return "1" if parse(name).kind is Kind.ALONE else f"{row['live']:.0f}"


def _heard(row: dict[str, Any]) -> str:
    """Cells: C50 and C100, longest gap, lost."""
    lost = sum(row["outcomes"][each.value] for each in LOST)
    return f"{shares(row)} | {row['gap_ms']['longest']:.0f} ms | {lost}"


def _times(first: dict[str, float | None]) -> str:
    return " / ".join("-" if first[key] is None else f"{first[key]:.0f}" for key in ("p50", "p95", "p99"))


def gpu_table(run: dict[str, Any]) -> list[str]:
    machine = run["environment"]
    weights = "The weights are generated: they speak noise, at equal speed." if "generated" in run["model"] else ""
    lines = [
        f"The engine without sockets, on one {machine['gpu']}, torch {machine['torch']}, {commit(run)}. {weights}",
        "",
        "| load | utterances | first audio p50 / p95 / p99 | C50 / C100 | RTF p50 | audio-s/s |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in run["scenarios"].items():
        first, rtf, rate = row["first_audio_ms"], row["rtf"], row["audio_s_per_s"]
        if first and not name.startswith("cancel"):
            cells = (
                name,
                str(first["num"]),
                f"{_times(first)} ms",
                shares(row),
                "-" if rtf is None else f"{rtf['p50']:.3f}",
            )
            lines.append(f"| {' | '.join(cells)} | {rate:.0f} |")
    return [*lines, *_gpu_remarks(run)]


def _gpu_remarks(run: dict[str, Any]) -> list[str]:
    """Files up to 2026-11-28 have cancels apart, and the plain way beside them."""
    told: list[str] = []
    for name, row in run["scenarios"].items():
        if times := row.get("cancel_ms") or row.get("stop_ms"):
            told += ["", f"Cancel to slot free ({name}): p50 {times['p50']:.1f} ms, p95 {times['p95']:.1f} ms."]
    rows = [(words, _better(run.get("ratios", {}).get(llm, {}))) for llm, words in _PLAIN_LLMS]
    if any(better for _, better in rows):
        told += [
            "",
            f"The plain way decodes one stream at a time, recomputes the whole prefix, eager, {run['plain']['dtype']} "
            "(`bench/plain/system.py`). Equal weights, in one run:",
            "",
            "| the plain way decodes with | this engine |",
            "|---|---|",
            *(f"| {words} | {better} |" for words, better in rows if better),
        ]
    return told


def _better(ratios: dict[str, float | None]) -> str:
    """The ratios that were measured."""
    named = (("first_audio", "first audio"), ("throughput", "throughput"))
    return ", ".join(f"{word} {ratios[key]:.0f} times better" for key, word in named if ratios.get(key))


def replace_section(text: str, name: str, lines: list[str]) -> str:
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, rest = text.split(begin)
    return "\n".join([f"{before}{begin}", *lines, f"{end}{rest.split(end)[1]}"])


def caveats_table(sockets: dict[str, Any] | None, engine: dict[str, Any] | None) -> list[str]:
    """Why the figures above are too good, one reason a row."""
    of_sockets = list(sockets["flattery"]) if sockets is not None else []
    if of_sockets and ALONE_FLATTERY not in of_sockets:
        of_sockets.append(ALONE_FLATTERY)  # files up to 2026-11-27 do not say it
    of_engine = engine["flattered_by"] if engine is not None else []
    of_engine = [each.replace("nobody", "no one") for each in of_engine]  # a word of files up to 2026-11-25
    rows = [("through sockets", each) for each in of_sockets] + [
        ("the engine without sockets", each) for each in of_engine
    ]
    return ["| figures | what flatters them |", "|---|---|", *(f"| {figures} | {words} |" for figures, words in rows)]


def sections(found: Found) -> dict[str, list[str]]:
    """Lines of both pages by the name of their section."""
    gpu, other, engine, scale = found(_SOCKET), found(_ELSEWHERE), found("engine-h200.json"), found(_SCALE)
    jobs = found("jobs-h200.json")
    cpu, quality, laptop = found("engine-cpu.json"), found("quality.json"), found("peers-cpu.json")
    peers, hosts = found("peers-h200.json"), [run for name in _HOSTS if (run := found(name)) is not None]
    vllm = {llm: run for llm, name in _VLLM.items() if (run := found(name)) is not None}
    by_vectors = {"AVX-512": found(_CPU_SOCKET), "AVX2": found("socket-cpu-avx2.json")}
    cpu_sockets = {vectors: run for vectors, run in by_vectors.items() if run is not None}
    return {
        "headline": [*headline(found(_LATEST), found(_CPU_SOCKET)), *mixed_claim(hosts)],
        "beside": beside(peers),
        "gpu": socket_table(gpu) if gpu is not None else [],
        "other-gpu": socket_table(other) if other is not None else [],
        "gpus": scale_table(scale) if scale is not None else [],
        "jobs": jobs_table(jobs) if jobs is not None else [],
        "engine": gpu_table(engine) if engine is not None else [],
        "cpu": [
            *(speed_table(cpu) if cpu is not None else []),
            *(["", *cpu_socket_table(cpu_sockets)] if cpu_sockets else []),
            *(["", *quality_table(quality)] if quality is not None else []),
        ],
        "peers": list(report.lines(peers)) if peers is not None else [_NOT_ON_A_GPU],
        "vllm": list(vllm_table(vllm)) if vllm else ["**It was not measured on a GPU of its own yet.**"],
        "laptop": list(report.lines(laptop)) if laptop is not None else [],
        "caveats": caveats_table(gpu, engine),
    }


def pages() -> dict[str, str]:
    """The pages as they are to be, by their paths in the repository."""
    parts = sections(results)
    texts = {page: (REPOSITORY / page).read_text() for page in _PAGES}
    for page, names in _PAGES.items():
        for name in names:
            texts[page] = replace_section(texts[page], name, parts[name])
    return texts


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for page, text in pages().items():
        (REPOSITORY / page).write_text(text)
    swept = results("latency-h200.json") or results(_SOCKET)
    if swept is not None and (drawn := picture(swept)):
        (REPOSITORY / "docs" / "images" / "latency.svg").write_text(drawn)


if __name__ == "__main__":
    main()
