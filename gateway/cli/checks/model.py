"""Checks of the model's files and of the voices, as `serve` will find them."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from voicegate.engine.model.config import ModelConfig
from voicegate.engine.voices.files import voice_files
from voicegate.gateway.cli.checks.finding import Finding, Level
from voicegate.gateway.cli.model_files import (
    UnfitFile,
    check_config,
    check_tokenizer,
    check_voice,
    check_weights,
    unmade_pairs,
)


def check_model(model_dir: Path, voices_dir: Path | None = None) -> Iterator[Finding]:
    try:
        model = check_config(model_dir)
    except UnfitFile as error:
        yield Finding(Level.FAIL, "model", f"{error}; choose another with --model-dir")
        return
    yield Finding(Level.OK, "model", f"{model.name} in {model_dir}")
    yield _file("tokenizer", partial(check_tokenizer, model_dir))
    for part in ("llm", "flow", "vocoder"):
        yield _file(part, partial(check_weights, model_dir, model, part))
    yield from _check_voices(model_dir, voices_dir, model)


def _check_voices(model_dir: Path, voices_dir: Path | None, model: ModelConfig) -> Iterator[Finding]:
    """As `serve` will find them: the user's win over the model's, and pairs become voices at the start."""
    if voices_dir is not None and not voices_dir.is_dir():
        text = f"{voices_dir} is no directory: make it, or leave out the directory of voices"
        yield Finding(Level.FAIL, "voices", text)
        voices_dir = None
    directories = [model_dir / "voices", *([voices_dir] if voices_dir is not None else [])]
    made = {name: path for directory in directories for name, path in voice_files(directory).items()}
    pairs = unmade_pairs(directories)
    if not made and not pairs:
        where = " and ".join(map(str, directories))
        text = f"no voice (*.safetensors) in {where}: see `voicegate voices add --help`"
        yield Finding(Level.FAIL, "voices", text)
        return
    for path in made.values():
        yield _file("voice", partial(_describe_voice, path, model))
    for path in pairs:
        yield Finding(Level.OK, "voice", f"{path.stem}: is made of {path} and its text when the gateway starts")
    if model.default_voice is not None and model.default_voice not in {*made, *(path.stem for path in pairs)}:
        text = f"model.json names the default voice {model.default_voice!r}, which is not there"
        yield Finding(Level.FAIL, "voices", text)


def _file(subject: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(Level.OK, subject, check())
    except UnfitFile as error:
        return Finding(Level.FAIL, subject, str(error))


def _describe_voice(path: Path, model: ModelConfig) -> str:
    return f"{path.stem}: {check_voice(path, model)}"
