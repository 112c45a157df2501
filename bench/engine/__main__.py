"""Measures the engine at its seam: no sockets. Loads, listeners and figures are those of `voicegate bench`.

    python -m voicegate.bench.engine                          # CPU, tiny model, one utterance at a time
    python -m voicegate.bench.engine --device cuda --model DIR --scenarios alone:whole live:128:whole closed:400:whole

Each row has the time that the engine's stages took, too. Any EngineConfig field is `--set NAME=VALUE`; a table of LLM
backends: llm_backends.py. Beside the plain way on the same weights: `python -m voicegate.bench.peers`.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from voicegate.bench import environment, results_file
from voicegate.bench.engine.run import measure
from voicegate.clients.bench.scenario import parse
from voicegate.clients.bench.schedule import Settings
from voicegate.engine.config import DEVICES, EngineConfig
from voicegate.engine.interface import EngineError, SpeakingMode
from voicegate.engine.load.devices import resolved_for_device
from voicegate.gateway.logs import configure_logs

SCENARIOS: Final = ("alone:whole", "closed:1:whole")


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


def engine_config(options: argparse.Namespace) -> EngineConfig:
    """With the device's numbers, and room for every scenario's utterances unless --set says how much.

    Raises UsageError, EngineError.
    """
    config = EngineConfig(options.model, device=options.device, threads=options.threads)
    config = resolved_for_device(config)
    # Poisson arrivals overshoot the number of live streams; those at once wait, and are not to be refused.
    room = 2 * max(each.num_streams for each in options.scenarios) + 32
    config = replace(
        config,
        max_utterances=max(config.max_utterances, room),
        max_waiting_utterances=max(config.max_waiting_utterances, room),
    )
    return with_settings(config, options.set)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", nargs="+", type=parse, default=[parse(each) for each in SCENARIOS])
    parser.add_argument("--model", type=Path, default=environment.REPOSITORY / "models" / "tiny")
    parser.add_argument("--device", choices=DEVICES, default="auto", help="(default: %(default)s)")
    parser.add_argument("--threads", type=int, help="of torch on a CPU (default: one per core)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="an EngineConfig field")
    parser.add_argument("--duration-s", type=float, default=10.0, help="arrivals within it are measured (default: 10)")
    parser.add_argument("--num-alone", type=int, default=20, help="sentences of one stream alone (default: 20)")
    parser.add_argument("--mode", choices=[each.value for each in SpeakingMode], default="auto")
    parser.add_argument("--voices", nargs="+", default=[], help="mixed (default: all of the model)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--label", default="", help="goes into the result")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    # A model that never stops has every clause of thousands cut, which the engine warns of. Failures are reported.
    configure_logs("error", "console")
    settings = Settings(
        voices=options.voices or (None,),
        mode=options.mode,
        duration_s=options.duration_s,
        num_alone=options.num_alone,
        seed=options.seed,
    )
    try:
        config = engine_config(options)
        set_up = {name: value.name if isinstance(value, Path) else value for name, value in asdict(config).items()}
        result = {"label": options.label, "environment": environment.describe(), "config": set_up}
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            save = partial(results_file.save, path=options.json)
            runner.run(measure(config, options.scenarios, settings, result, save))
    except (UsageError, EngineError) as error:
        print(f"bench.engine: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
