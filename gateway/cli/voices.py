"""`voicegate voices`: lists those of a running gateway or of a model directory; the rest works on the directory."""

import argparse
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from voicegate.clients.python.address import path_beside, stream_url
from voicegate.engine import units
from voicegate.engine.checks import check_voice_name
from voicegate.engine.interface import NewVoice
from voicegate.engine.voices.files import default_voice, pair_of, voice_names
from voicegate.engine.voices.pace import VoicePace, pace_in
from voicegate.engine.voices.sound_files import UnreadableFile, read_recording, read_transcript
from voicegate.gateway.cli.extras import server_imports
from voicegate.gateway.cli.gateway_http import add_access, pieces
from voicegate.gateway.cli.model_files import check_config, check_voice, read_header, voice_paths
from voicegate.gateway.cli.terminal import CommandError, changing, note, replacing, say
from voicegate.gateway.config import from_environment

_TIMEOUT_S: Final = 5.0
_VOICES_PATH: Final = "/v1/voices"


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
        help="list, show, add, remove and export voices",
        description="The voices of a model directory; those of a running gateway can be listed.",
        allow_abbrev=False,
    )
    _add_source(parser, default=None)
    parser.set_defaults(run=_list)
    actions = parser.add_subparsers(metavar="action", dest="action")

    listing = actions.add_parser("list", help="list the voices; * marks the default (also without an action)")
    _add_source(listing, default=argparse.SUPPRESS)

    show = actions.add_parser("show", help="what one voice is")
    add = actions.add_parser(
        "add",
        help="make a voice of a recording",
        description="Make a voice of a recording: 1 to 30 s of one speaker, best 3 to 10, at 16 kHz or more.",
    )
    remove = actions.add_parser("remove", help="delete a voice")
    export = actions.add_parser("export", help="copy a voice's file")
    for action, run_action in ((show, _show), (add, _add), (remove, _remove), (export, _export)):
        action.add_argument("name", metavar="NAME")
        _add_model_dir(action, default=argparse.SUPPRESS)
        action.set_defaults(run=run_action)

    add.add_argument("--wav", type=Path, required=True, metavar="FILE", help="the recording: WAV, FLAC, Ogg or MP3")
    text = add.add_mutually_exclusive_group()
    text.add_argument("--text", help="what the recording says, word for word; none: for use across languages")
    text.add_argument("--text-file", type=Path, metavar="FILE", help="a UTF-8 file with what the recording says")
    add.add_argument("--description", default="", help="a few words for lists of voices")
    for action in (add, export):
        action.add_argument("--replace", action="store_true", help="overwrite what is there")
    export.add_argument("path", type=Path, metavar="PATH", help="the file or directory to copy it to")


def _add_source(parser: argparse.ArgumentParser, *, default: Any) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--url", default=default, help="of a running gateway")
    add_access(parser, default=default)
    _add_model_dir(source, default=default)


def _add_model_dir(parser: Any, *, default: Any) -> None:
    parser.add_argument(
        "--model-dir",
        "--model",
        type=Path,
        default=default,
        metavar="DIR",
        help="(default: the model that `voicegate serve` would serve)",
    )


def _list(options: argparse.Namespace) -> int:
    if options.url is None:
        found = read_voices(_model_dir(options))
    else:
        found = fetch_voices(options.url, options.api_key, options.ca_file)
    width = max((len(voice.name) for voice in found.voices), default=0)
    for voice in found.voices:
        mark = "*" if voice.name == found.default else " "
        say(f"{mark} {voice.name:<{width}}  {voice.description}".rstrip())
    return 0


def _show(options: argparse.Namespace) -> int:
    model_dir = _model_dir(options)
    model = check_config(model_dir)
    path = _existing(model_dir, options.name)
    description = check_voice(path, model)
    header = read_header(path)
    num_tokens = header.shapes["speech_tokens"][0]
    facts = {
        "name": options.name,
        "description": description,
        "transcript": header.texts["transcript"] or "(none: for use across languages)",
        "prompt": _prompt_text(num_tokens),
        "pace": _pace_text(pace_in(header.texts)),
        "file": f"{path}, {path.stat().st_size} bytes",
    }
    for label, value in facts.items():
        say(f"{label:<12} {value}".rstrip())
    return 0


def _add(options: argparse.Namespace) -> int:
    model_dir = _model_dir(options)
    model = check_config(model_dir)
    check_voice_name(options.name)
    path = _path(model_dir, options.name)
    if path.exists() and not options.replace:
        raise CommandError(f"{path} exists: --replace overwrites it")
    try:  # before what takes seconds to be loaded
        transcript = (options.text or "") if options.text_file is None else read_transcript(options.text_file)
        recording = read_recording(options.wav)
    except UnreadableFile as error:
        raise CommandError(str(error)) from error

    with server_imports():
        from voicegate.gateway.cli.enrol import add_voice  # noqa: PLC0415 - imports torch

    new = NewVoice(options.name, recording, transcript, options.description)
    added = add_voice(model_dir, model, new, path)
    say(f"{path}: prompt of {_prompt_text(added.num_tokens)}")
    for remark in added.remarks:
        note(remark)
    return 0


def _remove(options: argparse.Namespace) -> int:
    model_dir = _model_dir(options)
    model = check_config(model_dir)
    path = _existing(model_dir, options.name)
    names = [other.stem for other in voice_paths(model_dir)]
    if len(names) == 1:
        raise CommandError(f"{options.name!r} is the only voice of {model_dir}, which needs one: add another first")
    if options.name == model.default_voice:
        raise CommandError(
            f"{options.name!r} is the default voice that {model_dir}/model.json names: change that first"
        )
    with changing(path, "deleted"):
        path.unlink()
    say(f"removed {path}")
    if (pair := pair_of(path.parent, path.stem)) is not None:
        note(f"{pair[0]} and its text are still there: the next start makes the voice again")
    return 0


def _export(options: argparse.Namespace) -> int:
    source = _existing(_model_dir(options), options.name)
    target = options.path / source.name if options.path.is_dir() else options.path
    if target.exists() and not options.replace:
        raise CommandError(f"{target} exists: --replace overwrites it")
    with replacing(target) as partial:
        shutil.copyfile(source, partial)
    say(f"wrote {target}")
    return 0


def _prompt_text(num_tokens: int) -> str:
    return f"{num_tokens / units.TOKEN_RATE_HZ:.2f} s, {num_tokens} speech tokens"


def _pace_text(pace: VoicePace | None) -> str:
    if pace is None:
        return "(that of its prompt; see voicegate tune-voice --help)"
    return f"{pace.tokens_per_letter:.2f} speech tokens a letter, {pace.growing_share:.2f} of it while text grows"


def _model_dir(options: argparse.Namespace) -> Path:
    return from_environment(os.environ, {"model_dir": options.model_dir}).found_model_dir()


def _path(model_dir: Path, name: str) -> Path:
    return model_dir / "voices" / f"{name}.safetensors"


def _existing(model_dir: Path, name: str) -> Path:
    """Raises CommandError."""
    check_voice_name(name)
    path = _path(model_dir, name)
    if not path.is_file():
        names = ", ".join(voice.name for voice in read_voices(model_dir).voices)
        raise CommandError(f"{model_dir} has no voice {name!r}; it has {names}")
    return path


def read_voices(model_dir: Path) -> Voices:
    """Raises CommandError."""
    model = check_config(model_dir)
    voices = [Voice(path.stem, check_voice(path, model)) for path in voice_paths(model_dir)]
    return Voices(default_voice(model, voice_names(model_dir / "voices")) or "", voices)


def fetch_voices(url: str, api_key: str | None = None, ca_file: Path | None = None) -> Voices:
    """Raises CommandError, InvalidInput."""
    body = b"".join(pieces(url, _VOICES_PATH, timeout_s=_TIMEOUT_S, api_key=api_key, ca_file=ca_file))
    try:
        return msgspec.json.decode(body, type=Voices)
    except msgspec.DecodeError as error:
        where = f"{urlsplit(stream_url(url)).netloc}{path_beside(url, _VOICES_PATH)}"
        raise CommandError(f"{where} is no page of a voicegate: {error}") from error
