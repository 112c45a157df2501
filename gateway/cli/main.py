"""The `voicegate` command: picks the subcommand, and turns its errors into one line. It must not import torch."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from voicegate import __version__
from voicegate.clients.python.errors import GateError
from voicegate.engine.interface import EngineError
from voicegate.gateway.cli import (
    bench,
    build,
    convert,
    doctor,
    jobs,
    keys,
    say,
    serve,
    size,
    tune_voice,
    version,
    voices,
)
from voicegate.gateway.cli.terminal import CommandError, clear_bar, note
from voicegate.gateway.config_fields import ConfigError

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, as shells have it

_COMMANDS: Final = (serve, say, jobs, bench, voices, tune_voice, keys, version, doctor, size, convert, build)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line instead of the whole usage."""
        note(f"{self.prog}: {message}; see {self.prog} --help")
        raise SystemExit(EXIT_USAGE)


def run(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status. Raises SystemExit where argparse does."""
    parser = _Parser(
        prog="voicegate",
        description="Self-hosted streaming voice gateway: text in over a WebSocket, Opus out as soon as it exists.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"voicegate {__version__}")
    parser.set_defaults(run=None)
    subparsers = parser.add_subparsers(metavar="command", dest="command")
    for command in _COMMANDS:
        command.add_parser(subparsers)
    options, unknown = parser.parse_known_args(arguments)
    if options.run is None:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    if unknown:
        note(f"voicegate {options.command}: {unknown[0]} is unknown here; see voicegate {options.command} --help")
        return EXIT_USAGE
    try:
        status = _carried_out(options)
    except (CommandError, ConfigError, EngineError, GateError) as error:
        note(f"voicegate: {error}")
        return EXIT_FAILED
    # `asyncio.run` loses an interrupt that comes as it begins (CPython sets its count after its handler): then its
    # task is cancelled, and nothing else.
    except (KeyboardInterrupt, asyncio.CancelledError):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # so that the interpreter does not complain about it at exit
        return EXIT_FAILED
    return status


def _carried_out(options: argparse.Namespace) -> int:
    try:
        status: int = options.run(options)
    finally:
        clear_bar()
    return status
