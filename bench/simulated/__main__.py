"""How an H200 would serve a load: the real engine core, on models and a device that only take the measured times.

    python -m voicegate.bench.simulated [--scenarios live:128:20 live:400:20] [--set NAME=VALUE] [--host-slowdown 1]
        [--llm-apart] [--jobs] [--duration-s 3] [--host-time] [--without RULE ...] [--json FILE]

For rules of the engine, without a GPU: what it predicts is then to be measured (docs/adr/0025).
"""

import argparse
import gc
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from voicegate.bench import environment, results_file
from voicegate.bench.engine.__main__ import UsageError, with_settings
from voicegate.bench.simulated.device import Device
from voicegate.bench.simulated.jobs import RunWithJobs
from voicegate.bench.simulated.models import simulated
from voicegate.bench.simulated.rules import RULES, without
from voicegate.bench.simulated.run import Run, figures
from voicegate.clients.bench.scenario import FORMS, Kind, Scenario, UnknownScenario, parse
from voicegate.clients.bench.schedule import Settings, schedule
from voicegate.clients.bench.sentences import ENGLISH
from voicegate.engine.config import EngineConfig
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.gateway.logs import configure_logs

_SCENARIOS: Final = ("alone:whole", "alone:20", "live:128:whole", "live:128:20", "live:400:whole", "live:400:20")
# Speech tokens a character of English: 60 ms, what `voicegate bench` takes a sentence for.
_TOKENS_PER_CHAR: Final = 1.5
# Behind the last turn that is measured: it is heard by then.
_TAIL_S: Final = 2.0
# An engine reserves so much for a text token, against the speech tokens that it comes to.
_RESERVED: Final = 8 / 6


def tokens_per_text_token(config: EngineConfig) -> float:
    """Speech tokens, as a generated full-size checkpoint speaks the benches' sentences, by this model's text tokens."""
    texts = [*ENGLISH.short, *ENGLISH.sentences, *ENGLISH.paragraphs]
    tokenizer = TextTokenizer.from_file(config.model_dir / "tokenizer.json", end_of_prompt_id=None)
    return _TOKENS_PER_CHAR * sum(map(len, texts)) / sum(len(tokenizer.encode(text)) for text in texts)


def measure(
    scenario: Scenario,
    config: EngineConfig,
    *,
    duration_s: float,
    host_slowdown: float,
    is_llm_apart: bool = False,
    has_host_time: bool = False,
    has_jobs: bool = False,
) -> dict[str, Any]:
    """`config`: resolved for a GPU. Raises ValueError for a time in which nobody is heard."""
    device = Device(is_llm_apart=is_llm_apart)
    models = simulated(config, device, tokens_per_text_token=tokens_per_text_token(config))
    run = (RunWithJobs if has_jobs else Run)(config, device, models, host_slowdown=host_slowdown)
    planned = schedule(scenario, Settings(voices=list(models.stages.voices), duration_s=duration_s))
    run.plan(planned)
    gc.freeze()  # as an engine does when it is loaded
    try:
        run.run(min(planned.window_s[1] + _TAIL_S, planned.stop_s))
    finally:
        gc.unfreeze()
    found = figures(run, planned.window_s)
    if isinstance(run, RunWithJobs):
        found["jobs"] = run.job_figures(planned.window_s)
    if has_host_time:
        found["host"] |= run.host_time.figures()
    return found


def line(scenario: Scenario, found: dict[str, Any]) -> str:
    first, llm, flow = found["first_audio_ms"], found["llm"], found["flow"]
    cells = (
        f"{scenario!s:<16} {found['num']:>4} {first['p50']:>7.0f}/{first['p95']:<6.0f}",
        f"{100 * found['c100']:>6.1f} % {found['longest_gap_ms']:>6.0f}",
        f"{llm['share_of_time']:>6.2f} x{llm['rows_per_step']:<5.1f} {llm['reprefills_per_s']:>6.0f}",
        f"{flow['share_of_time']:>6.2f} x{flow['rows_per_step']:<5.1f} {found['host']['share_of_time']:>5.2f}",
    )
    return " ".join(cells)


def _writer_line(writer: str, row: dict[str, Any]) -> str:
    first = row["first_audio_ms"]
    return (
        f"  {writer:<14} {row['num']:>4} {first['p50']:>7.0f}/{first['p95']:<6.0f}"
        f"{100 * row['c100']:>6.1f} % {row['longest_gap_ms']:>6.0f}"
    )


def _host_line(host: dict[str, Any]) -> str:
    added = ", ".join(f"{name} {us:.1f}" for name, us in host["us"].items())
    return f"{'':<16} host: {host['cpu_s']:.2f} s of CPU, {host['yardsticks']} yardsticks; us a {added}"


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m voicegate.bench.simulated",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", type=Path, default=environment.REPOSITORY / "models" / "tiny", metavar="DIR")
    parser.add_argument("--scenarios", nargs="+", default=_SCENARIOS, metavar="NAME", help=f"{FORMS}; not closed")
    parser.add_argument("--duration-s", type=float, default=3.0, help="turns that begin in it count (default: 3)")
    parser.add_argument(
        "--host-slowdown",
        type=float,
        default=1.0,
        metavar="N",
        help="of the engine's thread: 1, the default, in a process of its own; about 1.6 beside a gateway's threads",
    )
    parser.add_argument(
        "--llm-apart", action="store_true", help="two GPUs: the LLM on one, flow and vocoder on the other (ADR 0024)"
    )
    parser.add_argument("--jobs", action="store_true", help="a full queue of jobs beside each load (docs/jobs.md)")
    parser.add_argument(
        "--host-time",
        action="store_true",
        help="also what the core's own Python took here, in CPU time: by step, row and command",
    )
    parser.add_argument("--without", nargs="+", default=[], metavar="RULE", help=f"switched off: {', '.join(RULES)}")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a field of EngineConfig")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    configure_logs("error", "console")
    rows: dict[str, Any] = {}
    try:
        scenarios = [_simulable(name) for name in options.scenarios]
        config = EngineConfig(options.model, device="cuda", encoder_processes=0)
        reserved = round(tokens_per_text_token(config) * _RESERVED)
        config = with_settings(config, [f"expected_tokens_per_text_token={reserved}", *options.set]).resolved("cuda")
        described = {
            "environment": environment.describe(),
            "config": {
                name: str(value) if isinstance(value, Path) else value for name, value in asdict(config).items()
            },
            "host_slowdown": options.host_slowdown,
            "is_llm_apart": options.llm_apart,
            "has_jobs": options.jobs,
            "duration_s": options.duration_s,
            "without": options.without,
            "scenarios": rows,
        }
        print(
            f"{'':<16} {'num':>4} {'first p50/p95':>14} {'C100':>8} {'gap':>6} {'LLM x rows':>13} {'reads':>6}"
            f" {'flow x rows':>13} {'host':>5}"
        )
        for scenario in scenarios:
            with without(options.without):
                found = measure(
                    scenario,
                    config,
                    duration_s=options.duration_s,
                    host_slowdown=options.host_slowdown,
                    is_llm_apart=options.llm_apart,
                    has_host_time=options.host_time,
                    has_jobs=options.jobs,
                )
            rows[str(scenario)] = found
            print(line(scenario, found), flush=True)
            for writer, row in found["by_writer"].items():
                print(_writer_line(writer, row), flush=True)
            if options.jobs:
                print(f"{'':<16} jobs: {found['jobs']['audio_s_per_s']} audio-s/s", flush=True)
            if options.host_time:
                print(_host_line(found["host"]), flush=True)
            results_file.save(described, options.json)
    except (UsageError, UnknownScenario, ValueError) as error:
        print(f"bench.simulated: {error}", file=sys.stderr)
        return 1
    return 0


def _simulable(name: str) -> Scenario:
    """Raises UnknownScenario."""
    scenario = parse(name)
    if scenario.kind is Kind.CLOSED:
        raise UnknownScenario(f"{name}: alone, live and mixed are simulated")
    return scenario


if __name__ == "__main__":
    sys.exit(main())
