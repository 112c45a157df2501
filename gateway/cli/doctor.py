"""`voicegate doctor`: what could keep the gateway from running here, each with what to do about it."""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from voicegate.engine import additions
from voicegate.gateway.cli.checks.engine import check_engines, check_llm_addition, check_llm_kernel, check_torch
from voicegate.gateway.cli.checks.finding import Finding, Level
from voicegate.gateway.cli.checks.machine import (
    check_cores,
    check_libopus,
    check_open_files,
    check_ports,
    check_python,
    check_sound,
)
from voicegate.gateway.cli.checks.model import check_model
from voicegate.gateway.cli.interrupts import interrupts_end_it
from voicegate.gateway.cli.terminal import say
from voicegate.gateway.config import GatewayConfig, from_environment
from voicegate.gateway.config_fields import ConfigError
from voicegate.gateway.install_command import install_command
from voicegate.gateway.server.entrance.descriptors import file_limits


def check_settings(config: GatewayConfig) -> Iterator[Finding]:
    """Finds settings that would end a start; those in order are not mentioned."""
    try:
        from voicegate.gateway.server.errors import GatewayError  # noqa: PLC0415 - the server's packages, see main.py
        from voicegate.gateway.server.starting import (  # noqa: PLC0415
            certificate_of,
            keyring_of,
            pronunciations_of,
        )
    except ImportError as error:
        yield Finding(Level.FAIL, "server", f"cannot be imported ({error}): {install_command('server')}")
        return
    for subject, read in (("keys", keyring_of), ("words", pronunciations_of), ("tls", certificate_of)):
        try:
            read(config)
        except GatewayError as error:
            yield Finding(Level.FAIL, subject, str(error))
    from voicegate.gateway.cli.checks.jobs import check_jobs  # noqa: PLC0415

    yield from check_jobs(config)


# Settings that the command line may name instead of the environment: how each value is shown, and the help.
_FLAGS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "model_dir": ("DIR", "(default: the model that `voicegate serve` would serve)"),
        "voices_dir": ("DIR", "of your own voices"),
        "port": ("PORT", "that it would listen on"),
        "jobs_dir": ("DIR", "of jobs"),
        "jobs_queue": ("URL", "of jobs that several gateways share"),
        "device": ("auto|cpu|cuda", "where the engine would run"),
        "gpus": ("0,1,...", "where engine processes would run"),
        "llm_device": ("cuda:0", "where the speech LLM alone would run"),
        "token2wav_devices": ("cuda:1,...", "where a flow and a vocoder each would run"),
        "llm_backend": ("NAME", "what would run the speech LLM"),
        "merged_hf_dir": ("DIR", "for tensorrt-llm and vllm: the checkpoint"),
        "llm_options": ("NAME=VALUE,...", "of the LLM backend"),
        "vocoder_backend": ("NAME", "what would run the vocoder"),
        "vocoder_precision": ("NAME", "of what its engines are"),
        "flow_backend": ("NAME", "what would run the flow"),
        "precision": ("NAME", "of what its engines are"),
        "tensorrt_dir": ("DIR", "for tensorrt: its engines"),
    }
)


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="check this machine",
        description="Check what the gateway needs. Exit status 1 where it cannot run.",
        allow_abbrev=False,
    )
    for name, (metavar, text) in _FLAGS.items():
        parser.add_argument("--" + name.replace("_", "-"), metavar=metavar, help=text)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    config = from_environment(os.environ, {name: getattr(options, name) for name in _FLAGS})
    status = 0
    with interrupts_end_it():  # it imports as it goes, and changes nothing
        for finding in examine(config):
            say(f"{finding.level.value:<5} {finding.subject:<11} {finding.text}")
            if finding.level is Level.FAIL:
                status = 1
    return status


def examine(config: GatewayConfig) -> Iterator[Finding]:
    """In the order in which a user would have to put things right."""
    yield check_python(sys.version_info[:2])
    yield check_libopus()
    yield from check_torch(config)
    has_own_llm = config.llm_backend not in additions.names("llm")
    if has_own_llm:
        yield from check_llm_kernel(config)
    else:
        yield check_llm_addition(config)
    yield from check_engines(config)
    yield check_cores()
    try:
        yield from check_model(config.found_model_dir(), config.voices_dir, has_own_llm=has_own_llm)
    except ConfigError as error:
        yield Finding(Level.FAIL, "model", str(error))
    yield from check_settings(config)
    yield from check_ports(config)
    yield check_open_files(config.max_sockets, file_limits())
    yield check_sound()
