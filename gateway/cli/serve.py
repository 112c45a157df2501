"""`voicegate serve`: every setting of GatewayConfig as a flag, then the gateway until a signal."""

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from voicegate.engine.interface import EngineInfo
from voicegate.gateway.cli.engine_place import has_engine_processes
from voicegate.gateway.cli.extras import extra_imports, server_imports
from voicegate.gateway.cli.interrupts import end_at_once
from voicegate.gateway.cli.terminal import CommandError, StartProgress, say
from voicegate.gateway.config import GatewayConfig, config_fields, from_environment
from voicegate.gateway.config_fields import ConfigField
from voicegate.gateway.hangups import hold_hangups

if TYPE_CHECKING:
    from voicegate.gateway.server.conversations.services import Trace

# How `--help` has them: those that people need first, then by what they are about.
FLAG_GROUPS: Final = {
    "first": "model_dir voices_dir host port api_keys_file tls_cert tls_key device max_utterances log_level",
    "network": """allowed_origins allowed_hosts trusted_proxies metrics_port metrics_host agent_port agent_host
        wyoming_port wyoming_zeroconf instance""",
    "keys": "require_key",
    "limits": """max_sockets sockets_per_address max_contexts contexts_per_socket contexts_per_address
        utterances_per_address waiting_contexts waiting_s context_idle_s context_life_s text_bytes context_text_bytes
        max_message_bytes messages_per_s write_stall_s drain_s""",
    "sessions that outlive their socket": "resume_s resume_session_bytes resume_total_bytes",
    "jobs": """jobs_dir jobs_queue max_jobs jobs_per_key jobs_text_bytes jobs_keep_s jobs_spare_bytes
        jobs_webhooks""",
    "voices and speech": "enrolment max_voices voice_aliases pronunciations_file lead_ms stall_ms",
    "CPU and GPU": """threads gpus engine_process max_active_clauses max_flow_batch encoder_processes precision
        kv_dtype flow_products vocoder_precision""",
    "other backends": """llm_backend merged_hf_dir llm_options vocoder_backend flow_backend tensorrt_dir llm_device
        token2wav_devices flow_context""",
    "logs and debugging": "log_format log_lines_per_s metric_tags tracing engine_timeout_s eager",
}


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "serve",
        help="run the gateway",
        usage="voicegate serve [--FLAG VALUE]...",
        description="Run the gateway. Flags win over environment variables.",
        epilog="; ".join(f"{setting.env}: {setting.help}" for setting in config_fields() if setting.is_secret),
        allow_abbrev=False,
    )
    settings = {setting.name: setting for setting in _flagged()}
    for title, names in FLAG_GROUPS.items():
        group = parser.add_argument_group(title)
        for setting in (settings[name] for name in names.split()):
            alone: dict[str, Any] = {"nargs": "?", "const": setting.choices[0]} if setting.value_type is bool else {}
            group.add_argument(setting.flag, dest=setting.name, metavar=_metavar(setting), help=_help(setting), **alone)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if os.getpid() == 1:  # of a container: the kernel keeps from it the signals that it does not handle
        signal.signal(signal.SIGTERM, end_at_once)
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
        yield tracing.observer
    finally:
        tracing.close()


def _announce(url: str, info: EngineInfo) -> None:
    """After the lines of the log, so that the page's address is the last that a terminal shows."""
    from voicegate.gateway.logs import flush_logs  # noqa: PLC0415 - the base install has no structlog

    if sys.stderr.isatty():
        flush_logs()
    names = ", ".join(voice.name for voice in info.voices)
    say(f"voicegate is ready: {url}, model {info.model}, voices {names}")
    say(f"Open {page_of(url)}")


def page_of(url: str) -> str:
    """The browser page of a server whose stream is at `url`; an address of all interfaces is this machine's."""
    parts = urlsplit(url)
    host = {"0.0.0.0": "localhost", "::": "localhost"}.get(parts.hostname or "", parts.hostname or "")
    shown_host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme.replace('ws', 'http')}://{shown_host}:{parts.port}/"


def _flagged() -> list[ConfigField]:
    return [setting for setting in config_fields() if not setting.is_secret]


def _metavar(setting: ConfigField) -> str:
    return "|".join(setting.choices) if setting.choices else setting.value_type.__name__.upper()


def _help(setting: ConfigField) -> str:
    default = "unset" if setting.default in (None, "") else setting.default
    if setting.value_type is bool:
        default = setting.choices[0 if setting.default else 1]
    return f"{setting.help} (default: {default}; {setting.env})".replace("%", "%%")
