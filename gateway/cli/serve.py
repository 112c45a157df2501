"""`voicegate serve`: every setting of GatewayConfig as a flag, then the gateway until a signal."""

import argparse
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from voicegate.engine.interface import EngineInfo
from voicegate.gateway.cli.engine_place import has_engine_processes
from voicegate.gateway.cli.extras import extra_imports, server_imports
from voicegate.gateway.cli.terminal import CommandError, StartProgress, say
from voicegate.gateway.config import GatewayConfig, config_fields, from_environment
from voicegate.gateway.config_fields import ConfigField
from voicegate.gateway.hangups import hold_hangups

if TYPE_CHECKING:
    from voicegate.gateway.server.conversations.services import Trace


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "serve",
        help="run the gateway",
        description="Run the gateway. Flags win over environment variables.",
        epilog="; ".join(f"{setting.env}: {setting.help}" for setting in config_fields() if setting.is_secret),
        allow_abbrev=False,
    )
    for setting in _flagged():
        alone: dict[str, Any] = {"nargs": "?", "const": setting.choices[0]} if setting.value_type is bool else {}
        parser.add_argument(setting.flag, dest=setting.name, metavar=_metavar(setting), help=_help(setting), **alone)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if os.getpid() == 1:  # of a container: the kernel keeps from it the signals that it does not handle
        signal.signal(signal.SIGTERM, _end)
    flags = {setting.name: getattr(options, setting.name) for setting in _flagged()}
    config = from_environment(os.environ, flags)
    if config.has_files_to_read_again:
        hold_hangups()

    # They import uvloop and torch (but for replicas): neither is needed for --help, nor by the other commands.
    with server_imports():
        if has_engine_processes(config, os.environ):
            from voicegate.gateway.cli.replicas import build_replicas as build_engine  # noqa: PLC0415
        else:
            from voicegate.gateway.cli.local import build_engine  # noqa: PLC0415
        from voicegate.gateway.logs import configure_logs  # noqa: PLC0415
        from voicegate.gateway.server.run import run_gateway  # noqa: PLC0415

    configure_logs(config.log_level, config.log_format, config.log_lines_per_s)
    failures: list[str] = []
    engine = build_engine(config, StartProgress(has_lines=False))
    with _tracing(config) as trace:
        status = run_gateway(config, engine, on_ready=_announce, on_failure=failures.append, trace=trace)
    if failures:
        raise CommandError(failures[0])
    return status


def _end(number: int, _frame: object) -> None:
    """Before there is a gateway to be drained."""
    os._exit(128 + number)


@contextmanager
def _tracing(config: GatewayConfig) -> "Iterator[Trace | None]":
    """Raises CommandError where the extra is not installed."""
    if not config.tracing:
        yield None
        return
    with extra_imports("otel"):
        from voicegate.gateway.server.tracing import Tracing  # noqa: PLC0415
    tracing = Tracing.by_otlp()
    try:
        yield tracing.witness
    finally:
        tracing.close()


def _announce(url: str, info: EngineInfo) -> None:
    names = ", ".join(voice.name for voice in info.voices)
    say(f"voicegate is ready: {url}, model {info.model}, voices {names}")


def _flagged() -> list[ConfigField]:
    return [setting for setting in config_fields() if not setting.is_secret]


def _metavar(setting: ConfigField) -> str:
    return "|".join(setting.choices) if setting.choices else setting.value_type.__name__.upper()


def _help(setting: ConfigField) -> str:
    default = "unset" if setting.default in (None, "") else setting.default
    if setting.value_type is bool:
        default = setting.choices[0 if setting.default else 1]
    return f"{setting.help} (default: {default}; {setting.env})".replace("%", "%%")
