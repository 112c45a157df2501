"""Checks of the model's files and of the voices: what a start reads, read by the start's own functions."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import EngineError
from voicegate.engine.model.config import ModelConfig
from voicegate.gateway.cli.checks.finding import Finding, Level
from voicegate.gateway.cli.model_files import UnfitFile, check_config

if TYPE_CHECKING:
    from voicegate.engine.text.tokenizer import TextTokenizer
    from voicegate.engine.voices.store import Found

_PARTS: Final = ("llm", "flow", "vocoder")
_FAULTS: Final = (EngineError, ValueError, OSError)  # what a start ends with


def check_model(model_dir: Path, voices_dir: Path | None = None, *, has_own_llm: bool = True) -> Iterator[Finding]:
    """`has_own_llm`: no other checkpoint's is run in the place of llm.safetensors."""
    try:
        model = check_config(model_dir)
    except UnfitFile as error:
        yield Finding(Level.FAIL, "model", f"{error}; choose another with --model-dir")
        return
    yield Finding(Level.OK, "model", f"{model.name} in {model_dir}")
    try:
        from voicegate.engine.load.family import load_tokenizer, load_weights  # noqa: PLC0415 - torch
        from voicegate.engine.model.weights import stored_noise  # noqa: PLC0415
    except (ImportError, OSError) as error:
        yield Finding(Level.WARN, "files", f"the model's files and voices are not looked at: {error}")
        return
    tokenizer = None
    try:
        tokenizer = load_tokenizer(model_dir, model)
        yield Finding(Level.OK, "tokenizer", str(model_dir / "tokenizer.json"))
    except _FAULTS as error:
        yield Finding(Level.FAIL, "tokenizer", str(error))

    def describe(part: str) -> str:
        if part == "flow":
            stored_noise(model_dir)
        return f"{len(load_weights(model_dir, model, part))} tensors"

    for part in _PARTS if has_own_llm else _PARTS[1:]:
        yield _file(part, describe)
    yield from _check_voices(model_dir, voices_dir, model, tokenizer)


def _file(part: str, describe: Callable[[str], str]) -> Finding:
    try:
        return Finding(Level.OK, part, describe(part))
    except _FAULTS as error:
        return Finding(Level.FAIL, part, str(error))


def _check_voices(
    model_dir: Path, voices_dir: Path | None, model: ModelConfig, tokenizer: "TextTokenizer | None"
) -> Iterator[Finding]:
    from voicegate.engine.load.start_voices import default_of  # noqa: PLC0415 - as above
    from voicegate.engine.voices.store import Found, find_voices  # noqa: PLC0415

    found: dict[str, Found] = {}
    for each in find_voices(model_dir, model, voices_dir):
        if isinstance(each, Found):
            found[each.voice.name] = each  # the user's win over the model's
        else:
            yield Finding(Level.FAIL, "voices", str(each))
    default = default_of(EngineConfig(model_dir=model_dir), model, found)
    for name, each in found.items():
        yield _check_voice(each, model, tokenizer, is_default=name == default)


def _check_voice(found: "Found", model: ModelConfig, tokenizer: "TextTokenizer | None", *, is_default: bool) -> Finding:
    from voicegate.engine.load.start_voices import fault_of  # noqa: PLC0415 - as above

    name = found.voice.name
    fault = fault_of(found.voice, model, tokenizer) if tokenizer is not None else None
    if fault is not None and is_default:
        return Finding(Level.FAIL, "voice", f"the default voice, {name!r}, cannot be spoken with: {fault}")
    if fault is not None:
        return Finding(Level.WARN, "voice", f"{name} is left out: {fault}")
    if found.making is not None:
        return Finding(Level.OK, "voice", f"{name}: is made of {found.path} and its text when the gateway starts")
    return Finding(Level.OK, "voice", f"{name}: {found.voice.description}")
