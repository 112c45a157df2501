"""`voicegate version`: ours, and those of what it stands on, without importing it."""

import argparse
import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Any

from voicegate import __version__
from voicegate.clients.python.decode import check_opus
from voicegate.clients.python.errors import MissingDependency
from voicegate.gateway.cli.terminal import say


def add_parser(subparsers: Any) -> None:
    text = "print the versions of voicegate and what it stands on"
    parser = subparsers.add_parser("version", help=text, description=text, allow_abbrev=False)
    parser.set_defaults(run=run)


def run(_options: argparse.Namespace) -> int:
    for name, shown in (
        ("voicegate", __version__),
        ("python", platform.python_version()),
        ("torch", version_of("torch")),
        ("libopus", opus_version()),
    ):
        say(f"{name:<10}{shown or 'not installed'}")
    return 0


def version_of(distribution: str) -> str | None:
    try:
        return installed_version(distribution)
    except PackageNotFoundError:
        return None


def opus_version() -> str | None:
    try:
        return check_opus().removeprefix("libopus ")
    except MissingDependency:
        return None
