"""`voicegate tune-voice`: how fast the model speaks with a voice, for speaking while a sentence is written."""

import argparse
import os
from pathlib import Path
from typing import Any, Final

from voicegate.clients.bench.sentences import LANGUAGES
from voicegate.engine import units
from voicegate.engine.config import DEVICES
from voicegate.engine.interface import base_language
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.voices.files import default_voice, voice_files, voice_names
from voicegate.engine.voices.pace import MIN_SENTENCES, PaceFit, VoicePace, fit, pace_in
from voicegate.gateway.cli.extras import server_imports
from voicegate.gateway.cli.model_files import Header, check_config, check_voice, read_header
from voicegate.gateway.cli.terminal import Bar, CommandError, changing, note, say
from voicegate.gateway.config import GatewayConfig, from_environment

_DEFAULT_SEEDS: Final = 2
_MAX_SENTENCES: Final = 1000  # of a file


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "tune-voice",
        help="measure how fast a voice speaks",
        description="Measure how fast the model speaks with a voice. A sentence that is spoken while it is written "
        "goes by that: how much of it may be said before more of it is there. Without it the pace of the voice's "
        "recording is taken.",
        allow_abbrev=False,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="of the voice (default: the model's)")
    parser.add_argument("--model-dir", "--model", type=Path, metavar="DIR", help="(default: as `voicegate serve`)")
    parser.add_argument(
        "--voices-dir", type=Path, metavar="DIR", help="your own voices (default: as `voicegate serve`)"
    )
    parser.add_argument("--device", choices=DEVICES, help="(default: as `voicegate serve`)")
    sentences = parser.add_mutually_exclusive_group()
    sentences.add_argument("--language", choices=sorted(LANGUAGES), help="of the sentences (default: the voice's)")
    sentences.add_argument(
        "--texts", type=Path, metavar="FILE", help=f"sentences of your own, one a line; {MIN_SENTENCES} or more"
    )
    parser.add_argument(
        "--seeds", type=int, default=_DEFAULT_SEEDS, metavar="N", help="times that each is said (default: %(default)s)"
    )
    parser.add_argument("--write", action="store_true", help="keep it in the voice's file, for the next start")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    given = {"model_dir": options.model_dir, "voices_dir": options.voices_dir, "device": options.device}
    config = from_environment(os.environ, given)
    model = check_config(config.found_model_dir())
    path = _path(config, options.name, model)
    check_voice(path, model)
    header = read_header(path)
    texts = _texts(options, header, model.languages[0])
    if len(texts) * options.seeds < MIN_SENTENCES:
        raise CommandError(
            f"{len(texts)} sentences, said {options.seeds} times each, tell no pace: {MIN_SENTENCES} are needed in all"
        )
    found = _measured(config, path, texts, options.seeds)
    _report(found, path, pace_in(header.texts))
    if options.write:
        _write(path, found.pace)
    else:
        note(f"nothing is changed: with --write it is kept in {path}")
    return 0


def _path(config: GatewayConfig, name: str | None, model: ModelConfig) -> Path:
    """Path of the voice's file: in the user's directory, which goes before, or in the model's. None: the default
    voice's.

    Raises CommandError.
    """
    own = config.found_model_dir() / "voices"
    directories = [own] if config.voices_dir is None else [config.voices_dir, own]
    paths = {each: path for directory in reversed(directories) for each, path in voice_files(directory).items()}
    if not paths:
        raise CommandError(f"{own} holds no voice (*.safetensors); a start makes them of recordings")
    if name is None:
        name = default_voice(model, voice_names(own), paths)
    if name not in paths:
        where = " and ".join(map(str, directories))
        raise CommandError(f"there is no file of a voice {name!r} in {where}; there are {', '.join(sorted(paths))}")
    return paths[name]


def _texts(options: argparse.Namespace, header: Header, default_language: str) -> list[str]:
    """Raises CommandError."""
    if options.texts is None:
        transcript = header.texts["transcript"]
        language = options.language or _language_of(transcript, default_language)
        if language not in LANGUAGES:
            raise CommandError(f"there are no sentences in {language!r} here: --texts takes a file of yours")
        chosen = LANGUAGES[language]
        return [*chosen.short, *chosen.sentences]
    try:
        lines = options.texts.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise CommandError(f"{options.texts} cannot be read: {reason}") from error
    texts = [line.strip() for line in lines if line.strip()]
    if not texts or len(texts) > _MAX_SENTENCES:
        raise CommandError(f"{options.texts} has {len(texts)} sentences; 1 to {_MAX_SENTENCES} are taken")
    return texts


def _language_of(transcript: str, default: str) -> str:
    """Raises CommandError where the server's packages are missing."""
    with server_imports():
        from voicegate.engine.text.language import detect_language  # noqa: PLC0415 - the base install has no Babel

    return base_language(detect_language(transcript, default))


def _measured(config: GatewayConfig, path: Path, texts: list[str], num_seeds: int) -> PaceFit:
    """Raises CommandError and EngineError."""
    with server_imports():
        from voicegate.engine.load.speaking_pace import measure_pace  # noqa: PLC0415 - imports torch
        from voicegate.gateway.cli.engine_settings import engine_config  # noqa: PLC0415
        from voicegate.gateway.logs import configure_logs  # noqa: PLC0415

    configure_logs("warning", "console")
    bar = Bar()
    heard = measure_pace(
        engine_config(config),
        path.stem,
        texts,
        num_seeds=num_seeds,
        on_said=lambda num_done, num_in_all: bar.draw("sentences", num_done / num_in_all),
    )
    bar.clear()
    if heard.num_cut_off:
        note(f"{heard.num_cut_off} sentences did not end by themselves, and are left out")
    try:
        return fit(heard.said)
    except ValueError as error:
        raise CommandError(str(error)) from error


def _report(found: PaceFit, path: Path, before: VoicePace | None) -> None:
    pace, relative = found.pace, found.relative
    ms_per_letter = pace.tokens_per_letter * units.MS_PER_TOKEN
    say(f"{path.stem}: {pace.tokens_per_letter:.3f} speech tokens a letter, {ms_per_letter:.0f} ms")
    nine_in_ten = f"{found.relative_at(0.05):.2f} to {found.relative_at(0.95):.2f}"
    say(
        f"of {len(relative)} sentences nine in ten take {nine_in_ten} of that, the fastest {relative[0]:.2f}, "
        f"the slowest {relative[-1]:.2f}"
    )
    say(f"share of it that may be said of a sentence while it is written: {pace.growing_share:.2f}")
    if before is not None:
        say(f"its file has {before.tokens_per_letter:.3f} tokens a letter, share {before.growing_share:.2f}")


def _write(path: Path, pace: VoicePace) -> None:
    from voicegate.engine.model.weights import WeightsError  # noqa: PLC0415 - imports torch
    from voicegate.engine.voices.voice import save_pace  # noqa: PLC0415

    try:
        with changing(path):
            save_pace(path, pace)
    except WeightsError as error:  # somebody has removed it meanwhile, or written something else there
        raise CommandError(f"the pace is not kept: {error}") from error
    say(f"wrote {path}; a server that runs goes by it from its next start on")
