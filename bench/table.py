"""The README's numbers, from bench/results: none is typed by hand.

    python -m bench.table

Replaces what stands between `<!-- NAME -->` and `<!-- /NAME -->` in README.md, for NAME headline and bench.
"""

import json
from typing import Any

from bench.environment import REPOSITORY


def results(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((REPOSITORY / "bench" / "results" / name).read_text())
    return loaded


def headline(report: dict[str, Any]) -> str:
    machine, short, paragraph = report["environment"], report["short"], report["paragraph"]
    return (
        f"**First audio {short['first_audio_ms']['p50']:.0f} ms after a short sentence is given, real-time factor "
        f"{paragraph['rtf']['p50']:.2f}**, on {machine['num_cores']} cores of an {machine['cpu']} without a GPU, with "
        "the embedded tiny model."
    )


def speed_table(report: dict[str, Any]) -> list[str]:
    machine, short = report["environment"], report["short"]
    where = f"{machine['num_cores']} cores of an {machine['cpu']}, torch {machine['torch']}, commit {machine['commit']}"
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
    return f"Word error rate by pocketsphinx over 20 everyday sentences, one seed each: {rates}."


def replace_section(text: str, name: str, lines: list[str]) -> str:
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, rest = text.split(begin)
    return "\n".join([f"{before}{begin}", *lines, f"{end}{rest.split(end)[1]}"])


def main() -> None:
    readme = REPOSITORY / "README.md"
    speed, quality = results("engine-cpu.json"), results("quality.json")
    text = replace_section(readme.read_text(), "headline", [headline(speed)])
    text = replace_section(text, "bench", [*speed_table(speed), "", quality_line(quality)])
    readme.write_text(text)


if __name__ == "__main__":
    main()
