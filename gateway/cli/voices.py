"""`voicegate voices`: of a running gateway, or of a model directory."""

import argparse
import http.client
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from clients.python.link import stream_url
from gateway.cli.model_files import UnfitFile, check_config, check_voice, voice_paths
from gateway.cli.terminal import CommandError, say
from gateway.config import from_environment

_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Voice:
    name: str
    description: str


@dataclass(frozen=True, slots=True)
class Voices:
    """As `GET /v1/voices` answers."""

    default: str
    voices: Sequence[Voice]


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "voices",
        help="list the voices",
        description="List the voices of a running gateway, or of a model directory; * marks the default.",
        allow_abbrev=False,
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--url", help="of a running gateway")
    source.add_argument("--model-dir", type=Path, help="(default: the model that `voicegate serve` would serve)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.url is not None:
        found = fetch_voices(options.url)
    else:
        found = read_voices(from_environment(os.environ, {"model_dir": options.model_dir}).model_dir)
    width = max((len(voice.name) for voice in found.voices), default=0)
    for voice in found.voices:
        mark = "*" if voice.name == found.default else " "
        say(f"{mark} {voice.name:<{width}}  {voice.description}".rstrip())
    return 0


def read_voices(model_dir: Path) -> Voices:
    """Raises CommandError."""
    try:
        model = check_config(model_dir)
        voices = [Voice(path.stem, check_voice(path, model)) for path in voice_paths(model_dir)]
    except UnfitFile as error:
        raise CommandError(str(error)) from error
    return Voices(model.default_voice or voices[0].name, voices)


def fetch_voices(url: str) -> Voices:
    """Raises CommandError, InvalidInput."""
    parts = urlsplit(stream_url(url))
    connection_type = http.client.HTTPSConnection if parts.scheme == "wss" else http.client.HTTPConnection
    connection = connection_type(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
    where = f"{parts.netloc}/v1/voices"
    try:
        connection.request("GET", "/v1/voices")
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise CommandError(f"{where}: cannot connect ({reason}); is the gateway running?") from error
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        reason = body.decode(errors="replace").strip().partition("\n")[0][:200]
        raise CommandError(f"{where} answered HTTP {response.status}: {reason}")
    try:
        return msgspec.json.decode(body, type=Voices)
    except msgspec.DecodeError as error:
        raise CommandError(f"{where} is no page of a voicegate: {error}") from error
