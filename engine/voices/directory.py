"""`NAME.wav` + `NAME.txt` in a directory of voices -> `NAME.safetensors`, made once and kept while both are the same.

The recording may be of every kind that `voices add` takes, and suffixes may be in capitals.

The header of the made file says what it was made from (`made_from`), so that a changed recording, text or checkpoint
makes it anew, and a voice that came otherwise is never overwritten: it stays, or stops the start where nobody can know
which of the two is meant.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from voicegate.engine.interface import EngineError, VoiceRefused
from voicegate.engine.model.weights import WeightsError, load_metadata
from voicegate.engine.voices.enrolment import Enroller
from voicegate.engine.voices.files import pair_of, recordings, text_beside
from voicegate.engine.voices.sound_files import UnreadableFile, read_recording, read_transcript
from voicegate.engine.voices.voice import Voice, VoiceError, save_voice

log = structlog.get_logger()

# Mark of a file that was not made from the pair beside it, and stays all the same: it was put there since.
_ENROLLED: Final = "enrolled"


@dataclass(frozen=True, slots=True)
class _Pair:
    path: Path  # of the recording
    recording: bytes
    transcript: str

    @property
    def name(self) -> str:
        return self.path.stem

    def made_from(self, enroller: Enroller) -> str:
        digest = hashlib.sha256(enroller.identity.encode() + b"\0" + self.transcript.encode() + b"\0" + self.recording)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Making:
    """A pair whose voice a start has to make, and nothing that can be told beforehand is in the way."""

    path: Path  # of the file to be
    outline: Voice
    _pair: _Pair
    _made_from: str
    _enroller: Enroller

    @property
    def recording_path(self) -> Path:
        return self._pair.path

    def run(self) -> Voice:
        """Hear it, and write it where that can be done. Raises VoiceError."""
        voice = _enrolled(self._enroller.enrol, self._pair)
        try:
            save_voice(voice, self.path, made_from=self._made_from)
        except OSError as error:
            reason = error.strerror or str(error)
            log.warning("voice_not_saved", voice=voice.name, path=str(self.path), reason=reason)
        if voice.trimmed:
            log.info("recording_trimmed", voice=voice.name, what=str(voice.trimmed))
        log.info("voice_enrolled", voice=voice.name, seconds=voice.seconds, has_transcript=bool(voice.transcript))
        return voice


def pairs_to_make(
    directory: Path, enroller: Callable[[], Enroller], *, is_models_own: bool
) -> Iterator[Making | EngineError | ValueError]:
    """Those whose voice file is not there or not up to date; a fault for each that cannot become a voice.

    A recording without text is a fault in a user's directory; a model's own may hold others (`is_models_own`).
    What `enroller` raises, where it is needed, is the last one.
    """
    hears: Enroller | None = None
    for name, paths in recordings(directory):
        try:
            pair = _pair_of(name, paths, is_models_own=is_models_own)
            if pair is None:
                continue
        except VoiceError as error:
            yield error
            continue
        try:
            hears = hears or enroller()
        except (EngineError, ValueError) as error:
            yield error
            return
        try:
            path = directory / f"{pair.name}.safetensors"
            made_from = pair.made_from(hears)
            if not _is_made(path, made_from, pair):
                yield Making(path, _enrolled(hears.outline, pair), pair, made_from, hears)
        except VoiceError as error:
            yield error


def _is_made(path: Path, made_from: str, pair: _Pair) -> bool:
    """Raises VoiceError where there is another voice."""
    if not path.exists():
        return False
    try:
        found = load_metadata(path).get("made_from")
    except WeightsError as error:
        raise VoiceError(str(error)) from error
    if found is None:
        raise VoiceError(f"{path} was not made from {pair.path.name} beside it: remove or rename one of the two")
    return found in (made_from, _ENROLLED)


def made_from_beside(path: Path) -> str | None:
    """Header of a voice file that is written to `path` by hand, so that the next start takes it.

    In the place of one that was made from a pair it stays until that pair changes; beside a pair without, until it is
    removed.
    """
    try:
        found = load_metadata(path).get("made_from") if path.exists() else None
    except WeightsError:  # it holds no voice, and is written anew
        found = None
    return found or (_ENROLLED if pair_of(path.parent, path.stem) else None)


def _enrolled(enrol: Callable[..., Voice], pair: _Pair) -> Voice:
    try:
        return enrol(pair.name, pair.recording, transcript=pair.transcript)
    except VoiceRefused as error:
        raise VoiceError(f"{pair.path}: {error}") from error


def _pair_of(name: str, paths: Sequence[Path], *, is_models_own: bool) -> _Pair | None:
    """Raises VoiceError."""
    path, text_path = paths[0], text_beside(paths[0])
    if text_path is None and is_models_own:
        return None
    if text_path is None:
        raise VoiceError(
            f"{path} has no text: write what it says into {name}.txt, or leave that file empty for a voice that is "
            "used across languages"
        )
    if len(paths) > 1:
        raise VoiceError(f"{' and '.join(map(str, paths))} have one name: remove or rename all but one")
    try:
        return _Pair(path, read_recording(path), " ".join(read_transcript(text_path).split()))
    except UnreadableFile as error:
        raise VoiceError(str(error)) from error
