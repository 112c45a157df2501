"""`voicegate bench`: how soon and how smoothly a gateway speaks, under loads of the user's choice."""

import argparse
import asyncio
import os
from pathlib import Path
from typing import Any, Final

from voicegate.clients.bench.client_run import BenchFailed
from voicegate.clients.bench.dialects import DIALECTS
from voicegate.clients.bench.plan import Target
from voicegate.clients.bench.ramp import Objective
from voicegate.clients.bench.run import Progress, Ramp
from voicegate.clients.bench.run import run as run_bench
from voicegate.clients.bench.scenario import FORMS, Scenario, UnknownScenario, parse
from voicegate.clients.bench.schedule import Settings
from voicegate.clients.bench.sentences import LANGUAGES, Texts, read_texts
from voicegate.clients.bench.usage import thread_cpu_s
from voicegate.clients.python.address import key_headers
from voicegate.gateway.cli.ranges import in_range
from voicegate.gateway.cli.terminal import Bar, CommandError, note, say
from voicegate.gateway.config import from_environment

_SCENARIOS: Final = ("alone:whole", "alone:20j", "closed:1", "closed:2", "closed:4", "closed:8")
_DIRECTORY: Final = Path("voicegate-bench")


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "bench",
        help="measure a running gateway",
        description=f"Measure a running gateway from outside. Scenarios are {FORMS}.",
        allow_abbrev=False,
    )
    parser.add_argument("url", nargs="?", help="of the gateway (default: the one on the default port)")
    parser.add_argument("--scenarios", nargs="+", type=parse, metavar="NAME", help=f"(default: {' '.join(_SCENARIOS)})")
    parser.add_argument(
        "--duration-s", type=in_range(float, 0.1), default=10.0, help="what begins in it is measured (default: 10)"
    )
    parser.add_argument(
        "--num-alone", type=in_range(int, 1), default=20, help="sentences of a stream alone (default: 20)"
    )
    parser.add_argument("--seed", type=int, default=0, help="the same load again (default: 0)")
    parser.add_argument("--server-pid", type=int, help="of the gateway on this machine: its CPU time is measured too")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=_DIRECTORY,
        metavar="DIR",
        help=f"for what is found (default: {_DIRECTORY})",
    )
    _add_ramp(parser)
    _add_speech(parser)
    parser.set_defaults(run=run)


def _add_ramp(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how many streams are carried")
    group.add_argument("--max-streams", type=in_range(int, 1), metavar="N", help="find out, up to N")
    group.add_argument("--ramp", default="mixed", metavar="KIND", help="mixed, live:20j, closed, ... (default: mixed)")
    group.add_argument(
        "--first-audio-ms", type=in_range(float, 0), default=300.0, help="which 95 %% are to have (default: 300)"
    )
    group.add_argument(
        "--c100", type=in_range(float, 0, 1), default=0.995, help="share without a gap over 100 ms (default: 0.995)"
    )


def _add_speech(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is said, and how")
    group.add_argument("--voice", action="append", dest="voices", help="may be given again (default: the server's)")
    group.add_argument("--mode", default="auto", help="of speaking (default: auto)")
    group.add_argument("--codec", choices=("opus", "pcm_s16le"), default="opus", help="PCM tells when sound is audible")
    group.add_argument("--language", choices=sorted(LANGUAGES), default="en", help="of the sentences (default: en)")
    group.add_argument("--texts", type=Path, metavar="FILE", help="sentences of your own, one a line")
    group.add_argument("--dialect", choices=sorted(DIALECTS), default="native", help="protocol (default: native)")
    group.add_argument("--api-key", metavar="KEY", help="of the gateway (default: VOICEGATE_API_KEY)")
    group.add_argument(
        "--ca-file", type=Path, metavar="FILE", help="the authority that signs the gateway's certificate, in PEM"
    )
    group.add_argument("--header", action="append", default=[], metavar="NAME:VALUE", help="may be given again")


def run(options: argparse.Namespace) -> int:
    bar = Bar()

    def line(text: str) -> None:
        bar.clear()
        say(text)

    def share(name: str, done: float) -> None:
        if done < 1.0:
            bar.draw(name, done)
        else:
            bar.clear()

    try:
        path = asyncio.run(
            run_bench(
                _target(options),
                _settings(options),
                _scenarios(options),
                _ramp(options),
                options.output,
                Progress(line, share),
                server_pid=_server_pid(options),
            )
        )
    except BenchFailed as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        if error.filename is None:  # no file's fault
            raise CommandError(str(error)) from error
        raise CommandError(f"{error.filename} cannot be written: {error.strerror}") from error
    note(f"wrote {path}, and the figures beside it")
    return 0


def _target(options: argparse.Namespace) -> Target:
    voice = options.voices[0] if options.voices else None
    url = options.url or f"ws://127.0.0.1:{from_environment(os.environ).port}"
    ca_file = None if options.ca_file is None else str(options.ca_file)
    return Target(url, options.dialect, options.codec, voice, _headers(options), ca_file)


def _settings(options: argparse.Namespace) -> Settings:
    return Settings(
        voices=tuple(options.voices or (None,)),
        mode=options.mode,
        texts=_texts(options),
        duration_s=options.duration_s,
        num_alone=options.num_alone,
        seed=options.seed,
    )


def _server_pid(options: argparse.Namespace) -> int | None:
    pid: int | None = options.server_pid
    if pid is not None and not thread_cpu_s(pid):
        raise CommandError(f"--server-pid {pid}: there is no such process on this machine")
    return pid


def _texts(options: argparse.Namespace) -> Texts:
    if options.texts is None:
        return LANGUAGES[options.language]
    try:
        return read_texts(options.texts.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"{options.texts} cannot be used: {error}") from error


def _scenarios(options: argparse.Namespace) -> list[Scenario]:
    if options.scenarios is not None:
        chosen: list[Scenario] = options.scenarios
        return chosen
    return [] if options.max_streams is not None else [parse(name) for name in _SCENARIOS]


def _ramp(options: argparse.Namespace) -> Ramp | None:
    if options.max_streams is None:
        return None
    try:
        return Ramp(options.ramp, options.max_streams, Objective(options.first_audio_ms, options.c100))
    except UnknownScenario as error:
        raise CommandError(f"--ramp {options.ramp}: {error}") from error


def _headers(options: argparse.Namespace) -> dict[str, str]:
    # A named header is the key of another vendor's server: ours is not for it.
    headers = {} if options.header and options.api_key is None else key_headers(options.api_key)
    for each in options.header:
        name, colon, value = each.partition(":")
        if not colon:
            raise CommandError(f"--header {each!r} is not NAME:VALUE")
        headers[name.strip()] = value.strip()
    return headers
