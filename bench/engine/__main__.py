"""Measures the engine at its seam: no sockets, real time, many listeners. Definitions: load.py, report.py.

    python -m voicegate.bench.engine                          # CPU, tiny model: one utterance at a time, time by stage
    python -m voicegate.bench.engine --scenario all --device cuda --model DIR --baseline

Scenarios, any number of them; N: streams, or --streams where the name has none

    first-audio   one stream at a time, a short text given whole
    live-N        N live streams in real time: first audio of new requests beside them
    sustain-N     the same; the verdict is whether N were sustained (C100, first audio p95, nothing refused)
    burst-N       N at once as fast as it goes: throughput
    cancel-N      cancels beside N live streams: cancel -> slot free
    memory        GPU memory a second of context and a stream (loads three small engines)
    all           first-audio, live-16, live-128, sustain-300, burst-400, cancel-16, memory
    stages        the default: see bench/engine/stages.py

Any EngineConfig field is `--set NAME=VALUE`; tables: ablation.py, llm_backends.py. `--baseline` then runs the plain way
(bench/plain/) on the same weights and texts, in this process, with each of its decoders, and gives the ratios.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from voicegate.bench import environment, results_file
from voicegate.bench.engine.load import StartPattern
from voicegate.bench.engine.run import ALL_SCENARIOS, Run, ScenarioName, measure, parse_scenario
from voicegate.bench.engine.stages import by_stage
from voicegate.bench.engine.texts import Lengths
from voicegate.bench.plain.llm import PlainLlmKind, has_transformers
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import EngineError, SpeakingMode
from voicegate.engine.load.devices import resolved_for_device
from voicegate.gateway.logs import configure_logs

_STAGES: Final = "stages"
_NUM_STAGE_RUNS: Final = 20
_NUM_SAMPLES: Final = 100


class UsageError(ValueError):
    """The command line asks for something that there is not. The message says what there is."""


def parse_setting(setting: str) -> tuple[str, Any]:
    """NAME=VALUE -> a field of EngineConfig and a value of its type: none, true, 12, text, a,b. Raises UsageError."""
    name, equals, value = setting.partition("=")
    types = {each.name: each.type for each in fields(EngineConfig) if each.name != "model_dir"}
    if not equals or name not in types:
        raise UsageError(f"--set {setting}: expected NAME=VALUE with NAME one of {', '.join(types)}")
    if types[name] == Path | None:
        return name, Path(value)
    if types[name] == tuple[str, ...]:
        return name, tuple(value.split(","))
    plain = None if value.lower() == "none" else value
    try:
        return name, msgspec.convert(plain, types[name], strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"--set {setting}: {error}") from error


def with_settings(config: EngineConfig, settings: Sequence[str]) -> EngineConfig:
    """Raises UsageError."""
    try:
        return replace(config, **dict(map(parse_setting, settings)))
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(f"--set: {error}") from error


def parse_range(text: str) -> tuple[float, float]:
    """3..15 -> (3.0, 15.0). Raises UsageError."""
    low, dots, high = text.partition("..")
    try:
        limits = (float(low), float(high if dots else low))
    except ValueError as error:
        raise UsageError(f"{text!r} is not a range of seconds such as 3..15") from error
    if not 0 < limits[0] <= limits[1]:
        raise UsageError(f"{text!r}: a range goes from a length above 0 up to one that is not smaller")
    return limits


def engine_config(options: argparse.Namespace, scenarios: Sequence[ScenarioName]) -> EngineConfig:
    """With the device's numbers, and room for every scenario's utterances unless --set says how much.

    Raises UsageError, EngineError.
    """
    config = EngineConfig(options.model, device=options.device or "auto", threads=options.threads)
    config = resolved_for_device(config)
    # Poisson arrivals and cancels overshoot the number of live streams. A burst waits; it is not to be refused.
    room = 2 * max((each.num_streams for each in scenarios), default=1) + 32
    config = replace(
        config,
        max_utterances=max(config.max_utterances, room),
        max_waiting_utterances=max(config.max_waiting_utterances, room),
    )
    return with_settings(config, options.set)


def scenarios_of(options: argparse.Namespace) -> list[ScenarioName]:
    names = [name for each in options.scenario for name in (ALL_SCENARIOS if each == "all" else (each,))]
    try:
        return [parse_scenario(name, default_streams=options.streams) for name in names]
    except ValueError as error:
        raise UsageError(str(error)) from error


def plain_llms_of(options: argparse.Namespace) -> tuple[PlainLlmKind, ...]:
    """Empty without --baseline. By default both where transformers is installed. Raises UsageError."""
    if not options.baseline:
        return ()
    if options.baseline_llm is None:
        return tuple(PlainLlmKind) if has_transformers() else (PlainLlmKind.LEAN,)
    if PlainLlmKind.TRANSFORMERS.value in options.baseline_llm and not has_transformers():
        raise UsageError("--baseline-llm transformers: not installed; `pip install transformers`")
    return tuple(kind for kind in PlainLlmKind if kind.value in options.baseline_llm)


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def run_stages(options: argparse.Namespace) -> dict[str, Any]:
    if options.device not in (None, "cpu"):
        raise UsageError("the scenario 'stages' times the CPU; on a GPU name another, such as --scenario all")
    config = with_settings(EngineConfig(options.model, device="cpu", threads=options.threads), options.set)
    voice = options.voices[0] if options.voices else None
    measured = by_stage(config, voice=voice, num_runs=options.samples or _NUM_STAGE_RUNS, tell=_note)
    return {"label": options.label, "environment": environment.describe(), **measured}


def run_of(options: argparse.Namespace) -> Run:
    scenarios = scenarios_of(options)
    shortest_s, longest_s = parse_range(options.audio_s)
    return Run(
        config=engine_config(options, scenarios),
        scenarios=tuple(scenarios),
        label=options.label,
        mode=SpeakingMode(options.mode),
        tokens_per_s=options.tokens_per_s if options.text == "paced" else None,
        shortest_s=shortest_s,
        longest_s=longest_s,
        lengths=Lengths(options.lengths) if options.lengths else None,
        voices=tuple(options.voices),
        pattern=StartPattern(options.arrival),
        num_samples=options.samples or _NUM_SAMPLES,
        duration_s=options.duration_s,
        limit_s=options.limit_s,
        seed=options.seed,
        plain_llms=plain_llms_of(options),
        num_plain=options.baseline_utterances,
        plain_dtype=options.baseline_dtype,
    )


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", nargs="+", default=[_STAGES], metavar="NAME")
    parser.add_argument("--model", type=Path, default=environment.REPOSITORY / "models" / "tiny")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), help="(default: auto; of stages: cpu)")
    parser.add_argument("--threads", type=int, help="of torch on a CPU (default: one per core)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="an EngineConfig field")
    parser.add_argument("--streams", type=int, default=16, help="of scenarios named without a number (default: 16)")
    parser.add_argument("--samples", type=int, help=f"utterances at least (default: {_NUM_SAMPLES}; stages: 20)")
    parser.add_argument("--duration-s", type=float, default=20.0, help="measured at least, of live streams")
    parser.add_argument("--limit-s", type=float, default=150.0, help="a scenario is cut off then (default: 150)")
    parser.add_argument("--arrival", choices=[each.value for each in StartPattern], default="staggered")
    parser.add_argument("--text", choices=("whole", "paced"), default="whole")
    parser.add_argument("--tokens-per-s", type=float, default=30.0, help="of paced text (default: 30)")
    parser.add_argument("--audio-s", default="3..15", help="audio lengths of utterances (default: 3..15)")
    parser.add_argument("--lengths", choices=[each.value for each in Lengths], help="(default: by trying)")
    parser.add_argument("--mode", choices=[each.value for each in SpeakingMode], default="auto")
    parser.add_argument("--voices", nargs="+", default=[], help="mixed (default: all of the model)")
    parser.add_argument("--seed", type=int, default=0, help="of lengths, voices and arrivals")
    parser.add_argument("--baseline", action="store_true", help="the plain way too, and the ratios")
    parser.add_argument(
        "--baseline-llm",
        nargs="+",
        choices=[each.value for each in PlainLlmKind],
        help="its decoders (default: both, where transformers is installed)",
    )
    parser.add_argument("--baseline-utterances", type=int, default=5, help="(default: 5; transformers says one)")
    parser.add_argument("--baseline-dtype", choices=("float32", "bfloat16"), help="(default: bfloat16; CPU: float32)")
    parser.add_argument("--label", default="", help="goes into the result")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    # A model that never stops has every clause of thousands cut, which the engine warns of. Failures are reported.
    configure_logs("error", "console")
    try:
        if options.scenario == [_STAGES]:
            report = run_stages(options)
            results_file.save(report, options.json)
            print(json.dumps(report, indent=1))
        else:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(measure(run_of(options), partial(results_file.save, path=options.json)))
    except (UsageError, EngineError) as error:
        print(f"bench.engine: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
