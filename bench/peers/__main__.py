"""Peers and voicegate in turn on one machine, all warm, with the same weights, texts and loads.

    python -m voicegate.bench.peers --packages DIR --peer-model SRC --model DST --json FILE [--fixes DIR --fix NAME ...]
    python -m voicegate.bench.peers --upstream PATH --peer-model SRC --json FILE --loads closed:1 closed:1:20

The first has vLLM-Omni, on a GPU: DIR has its packages and what they need beside this environment's torch, as
`pip install --target` leaves them. The second has upstream's own classes, on either: PATH is the checkout of
FunAudioLLM/CosyVoice, that of Matcha-TTS, and a directory with packages, with `:` between them.
SRC is a checkpoint in upstream's layout with a reference.json; DST is the same, converted: the embedded model, unless
named. For upstream's classes `python -m voicegate.bench.peers.embedded SRC [--model DST]` makes SRC of any DST. For
vLLM-Omni generated weights are written by `python -m voicegate.bench.peers.generated SRC` and
`python -m voicegate.bench.full_size engine-dir DST --natural`.
Every load is saved when it is over, and a later run with that FILE goes on from there.
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import torch

from voicegate.bench import servers
from voicegate.bench.peers import reference, report, upstream, vllm_omni
from voicegate.bench.peers.kept import Kept
from voicegate.bench.plain.system import PlainSpeaker, measure
from voicegate.clients.bench import table
from voicegate.clients.bench.client_run import BenchFailed
from voicegate.clients.bench.plan import Target
from voicegate.clients.bench.scenario import Scenario, parse
from voicegate.clients.bench.schedule import Settings
from voicegate.clients.bench.sentences import ENGLISH
from voicegate.clients.bench.session import Bench
from voicegate.engine.model.model_json import load_model_config
from voicegate.gateway.cli.ranges import in_range
from voicegate.gateway.config import tiny_model_dir

LOADS: Final = ("closed:1", "closed:2", "closed:4", "closed:16", "closed:64")
_WARM_LOADS: Final = ("closed:1", "closed:4")
_WARM_S: Final = 5.0
_MAX_CLAUSE_TOKENS: Final = 750  # as shipped


@dataclass(frozen=True, slots=True)
class Server:
    """`start` takes a log, and gives address, process id and seconds until it was ready."""

    start: Callable[[Path], AbstractContextManager[tuple[str, int, float]]]
    dialect: str
    voice: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A round: what is measured of each server in turn. `loads` by their names in the result file."""

    loads: Mapping[str, Scenario]
    settings: Settings


def rounds(options: argparse.Namespace, settings: Settings) -> Iterator[Part]:
    """Each with a seed of its own. Raises UnknownScenario."""
    for number in range(options.rounds):
        loads = {report.round_name(str(scenario), number): scenario for scenario in map(parse, options.loads)}
        yield Part(loads, replace(settings, seed=number))


def servers_of(options: argparse.Namespace) -> dict[str, Server]:
    """Those that speak over sockets. Raises ValueError for files that are missing or wrong."""
    model = load_model_config(options.model)
    voices = sorted(path.stem for path in (options.model / "voices").glob("*.safetensors"))
    if options.peer_model is not None:
        voice = reference.load(options.peer_model).voice
    elif options.packages is None and options.upstream is None:
        voice = voices[0] if voices else ""
    else:
        raise ValueError("a peer needs --peer-model")
    if voice not in voices:
        told = f"has no voice {voice!r}, which {options.peer_model} names" if voice else "has no voice"
        raise ValueError(f"--model {options.model} {told}: it has to be the same model, converted")
    found: dict[str, Server] = {}
    if options.packages is not None:
        kinds = {"vllm-omni": vllm_omni.Variant(options.packages, options.peer_model, talker_dtype="float32")}
        if options.fixes is not None:
            kinds["vllm-omni-fixed"] = vllm_omni.Variant(
                options.packages, options.peer_model, fixes=options.fixes, fix_names=tuple(options.fix)
            )
        for name, kind in kinds.items():
            start = partial(vllm_omni.serving, kind)
            found[name] = Server(start, "vllm-omni", vllm_omni.VOICE, kind.settings(name))
    if options.upstream is not None:
        path = tuple(Path(each) for each in options.upstream.split(os.pathsep))
        steps = model.cosyvoice3_flow.num_euler_steps
        for name, is_growing in (("upstream", False), ("upstream-generator", True)):
            classes = upstream.Variant(path, options.peer_model, voice, steps, is_growing)
            found[name] = Server(partial(upstream.serving, classes), "vllm-omni", voice, classes.settings(name))
    return found | {report.OURS: Server(partial(servers.voicegate, options.model, []), "native", voice, {})}


async def _measure(server: Server, url: str, pid: int, kept: Kept, rows: dict[str, Any], part: Part) -> None:
    """Load after load; after one at which nobody heard anything the others are left out."""
    target, spoken = Target(url, dialect=server.dialect), replace(part.settings, voices=(server.voice,))
    most_streams = max(scenario.num_streams for scenario in part.loads.values())
    for scenario in map(parse, _WARM_LOADS):
        if scenario.num_streams <= most_streams:
            await Bench(target, replace(spoken, duration_s=_WARM_S)).measure(scenario)
    bench, silent = Bench(target, spoken, server_pid=pid), ""
    print(table.heading(), flush=True)
    for name, scenario in part.loads.items():
        if name in rows:
            continue
        try:
            rows[name] = {"failed": f"left out after {silent}"} if silent else await bench.measure(scenario)
        except BenchFailed as error:
            rows[name] = {"failed": str(error)}
        kept.save()
        silent = silent or ("" if rows[name].get("audio_s") else name)
        print("\n".join(table.lines(name, rows[name]) if "failed" not in rows[name] else [f"{name}: {rows[name]}"]))


def measure_server(name: str, server: Server, kept: Kept, part: Part, logs: Path) -> None:
    """Starts it, warms it, measures the loads that the file lacks; a failure is told and kept."""
    result = kept.server(name, server.settings)
    if part.loads.keys() <= result["loads"].keys():
        return
    try:
        with server.start(logs / f"{name}.log") as (url, pid, start_s):
            print(f"{name}: ready after {start_s:.0f} s", flush=True)
            result["start_s"] = round(start_s, 1)
            asyncio.run(_measure(server, url, pid, kept, result["loads"], part))
    except (BenchFailed, RuntimeError, OSError) as error:
        result["failed"] = str(error)
        print(f"{name}: {error}", flush=True)
    kept.save()


def measure_plain(model: Path, voice: str, kept: Kept) -> None:
    """Hugging Face's decoder with the reference's schedule (bench/plain), in this process, without sockets."""
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    result = kept.server(report.PLAIN, {"dtype": str(dtype)})
    try:
        speaker = PlainSpeaker(model, device="auto", dtype=dtype, max_clause_tokens=_MAX_CLAUSE_TOKENS)
        llm = speaker.load_llm()
        result["figures"] = measure(speaker, llm, ENGLISH.short[:5], ENGLISH.sentences[:1], [voice])
    except (ImportError, ValueError, RuntimeError, OSError) as error:
        result["failed"] = str(error)
        print(f"{report.PLAIN}: {error}", flush=True)
    kept.save()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, metavar="DIR", help="of vLLM-Omni")
    parser.add_argument("--upstream", metavar="PATH", help="DIR:DIR:..., the checkout of upstream's code first")
    parser.add_argument("--peer-model", type=Path, metavar="SRC", help="upstream's layout; of a peer")
    parser.add_argument("--model", type=Path, default=tiny_model_dir(), metavar="DST", help="the same, converted")
    parser.add_argument("--fixes", type=Path, metavar="DIR", help="in front of the packages, as vllm-omni-fixed")
    parser.add_argument("--fix", action="append", default=[], metavar="NAME", help="what --fixes mends; once for each")
    parser.add_argument("--servers", nargs="+", metavar="NAME", help="(default: all)")
    parser.add_argument("--loads", nargs="+", default=list(LOADS))
    parser.add_argument("--rounds", type=in_range(int, 1), default=1, help="servers in turn, so often (default: 1)")
    parser.add_argument("--duration-s", type=in_range(float, 0.1), default=20.0, help="of each load (default: 20)")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE")
    parser.add_argument("--logs", type=Path, default=Path("build/bench-peers"), metavar="DIR")
    return parser


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if (options.fixes is None) is not (not options.fix):
        parser.error("--fixes and --fix go together: the table says what was mended")
    settings = Settings(duration_s=options.duration_s)
    try:
        found = servers_of(options)
        voice = found[report.OURS].voice
        parts = list(rounds(options, settings))
        conditions = {"loads": options.loads, "rounds": options.rounds, "voice": voice}
        kept = Kept(options.json, conditions | settings.conditions(), {each: found[each].settings for each in found})
    except ValueError as error:
        parser.error(str(error))
    names = options.servers or [*found, report.PLAIN]
    if unknown := sorted(set(names) - {*found, report.PLAIN}):
        parser.error(f"no server {', '.join(unknown)}; there are {', '.join((*found, report.PLAIN))}")
    try:
        for part, name in product(parts, names):
            if name in found:
                measure_server(name, found[name], kept, part, options.logs)
            elif "figures" not in kept.report["servers"].get(report.PLAIN, {}):
                measure_plain(options.model, voice, kept)
    except (KeyboardInterrupt, asyncio.CancelledError):  # the second where the loop was not running yet
        print(f"interrupted; with --json {options.json} the same command goes on from here", file=sys.stderr)
        return 130
    finally:
        print("\n".join(report.lines(kept.report)), flush=True)
    return 0


def command() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a limit of time ends it as Ctrl-C does
    return main()


if __name__ == "__main__":
    sys.exit(command())
