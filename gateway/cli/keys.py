"""`voicegate keys`: makes, lists and removes the API keys of a file. A key itself is shown once, when it is made."""

import argparse
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from voicegate.gateway.auth.key_file import add_key, read_keys, remove_key
from voicegate.gateway.auth.keyring import Allowance, Key, check_name, digest_of, new_secret
from voicegate.gateway.cli.ranges import in_range
from voicegate.gateway.cli.terminal import CommandError, note, say
from voicegate.gateway.config import from_environment

_MAX_ALLOWANCE: Final = 999_999_999


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "keys",
        help="make, list and remove API keys",
        description="API keys of a file, which holds their hashes. A running server reads it again on SIGHUP.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(metavar="action", dest="action", required=True)
    add = actions.add_parser("add", help="make a key and print it; it is not shown again")
    listing = actions.add_parser("list", help="names and limits")
    remove = actions.add_parser("remove", help="take a key back")
    for action, run_action in ((add, _add), (listing, _list), (remove, _remove)):
        action.add_argument(
            "--api-keys-file", type=Path, metavar="FILE", help="(default: the one that `voicegate serve` would read)"
        )
        action.set_defaults(run=run_action)
    for action in (add, remove):
        action.add_argument("name", metavar="NAME", help="of the key, for you and for the log")
    for what in ("sockets", "contexts", "utterances"):
        add.add_argument(
            f"--{what}",
            type=in_range(int, 1, _MAX_ALLOWANCE),
            metavar="N",
            help="at once (default: no limit of its own)",
        )


def _add(options: argparse.Namespace) -> int:
    path, secret = _path(options), new_secret()
    allowance = Allowance(options.sockets, options.contexts, options.utterances)
    add_key(path, Key(check_name(options.name), digest_of(secret), allowance))
    say(secret)
    note(f"its hash is in {path}; send SIGHUP to a server that runs, and keep the key: it is not shown again")
    return 0


def _list(options: argparse.Namespace) -> int:
    keys = read_keys(_path(options)).keys
    width = max((len(key.name) for key in keys), default=0)
    for key in keys:
        shown = ", ".join(f"{what} {limit}" for what, limit in asdict(key.allowance).items() if limit is not None)
        say(f"{key.name:<{width}}  {shown}".rstrip())
    return 0


def _remove(options: argparse.Namespace) -> int:
    path = _path(options)
    remove_key(path, options.name)
    note(f"removed {options.name} from {path}; send SIGHUP to a server that runs, which then closes what it opened")
    return 0


def _path(options: argparse.Namespace) -> Path:
    """Raises CommandError, ConfigError."""
    path: Path | None = options.api_keys_file or from_environment(os.environ).api_keys_file
    if path is None:
        raise CommandError("no file is named: give --api-keys-file FILE, or set VOICEGATE_API_KEYS_FILE")
    return path
