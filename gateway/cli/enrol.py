"""`voicegate voices add`: a recording -> a voice file in a model directory. Imports torch, so it is imported late."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from voicegate.engine.interface import NewVoice
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.voices.checks import RECOMMENDED_MIN_SECONDS
from voicegate.engine.voices.directory import made_from_beside
from voicegate.engine.voices.enrolment import load_enroller
from voicegate.engine.voices.voice import Voice, save_voice
from voicegate.gateway.cli.terminal import CommandError, changing


@dataclass(frozen=True, slots=True)
class Added:
    num_tokens: int
    remarks: tuple[str, ...]  # what was done to the recording, and what would make the voice better


def add_voice(model_dir: Path, model: ModelConfig, new: NewVoice, path: Path) -> Added:
    """Write the voice to `path`. Raises CommandError, EngineError."""
    try:
        with changing(path):
            enroller = load_enroller(model_dir, model)
            voice = enroller.enrol(new.name, new.recording, transcript=new.transcript, description=new.description)
            path.parent.mkdir(exist_ok=True)
            save_voice(voice, path, made_from=made_from_beside(path))
    except ValueError as error:
        raise CommandError(str(error)) from error
    return Added(voice.num_tokens, tuple(_remarks(voice)))


def _remarks(voice: Voice) -> Iterator[str]:
    if voice.trimmed:
        yield str(voice.trimmed)
    if not voice.transcript:
        yield "no transcript: it speaks across languages only, and less like the recording; --text gives one"
    if voice.seconds < RECOMMENDED_MIN_SECONDS:
        yield f"shorter than {RECOMMENDED_MIN_SECONDS:.0f} s: 3 to 10 s resemble the speaker more"
