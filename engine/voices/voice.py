"""A voice: what zero-shot synthesis is conditioned on, and the one file that holds it.

The file is safetensors with `speech_tokens` [P], `mel` [2P, 80], `embedding` [192] and, in its header's string
table, `prompt_text` (as upstream conventions want it, with <|endofprompt|>; empty without transcript),
`transcript` and `description`; where it was made from a pair of files, `made_from` (see directory.py); and where it
was tuned, its pace (see pace.py).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from safetensors.torch import save

from voicegate.engine import units
from voicegate.engine.interface import VoiceInfo
from voicegate.engine.model.weights import load_metadata, load_state_dict
from voicegate.engine.text.language import recorded_language
from voicegate.engine.text.spoken_length import spoken_letters
from voicegate.engine.voices.pace import VoicePace, pace_in
from voicegate.engine.voices.trimming import NOT_TRIMMED, Trimmed
from voicegate.engine.whole_file import write_whole

_TENSORS = ("speech_tokens", "mel", "embedding")
_TEXTS = ("prompt_text", "transcript", "description")


class VoiceError(ValueError):
    """A voice file is not usable. The message names the file and what is wrong."""


@dataclass(frozen=True, slots=True)
class Voice:
    name: str
    description: str
    prompt_text: str
    transcript: str  # what the prompt audio says, without the instruction
    speech_tokens: torch.Tensor  # [P] int64
    mel: torch.Tensor  # [2P, 80] float32, log mel of the prompt
    embedding: torch.Tensor  # [192] float32, speaker embedding before normalisation
    pace: VoicePace | None = None  # as this model was found to speak with it
    trimmed: Trimmed = NOT_TRIMMED  # of its recording, where it was made just now

    @property
    def num_tokens(self) -> int:
        return len(self.speech_tokens)

    @property
    def seconds(self) -> float:
        return self.num_tokens / units.TOKEN_RATE_HZ

    def language(self, languages: Sequence[str]) -> str | None:
        """Language of its recording, one of the model's `languages`; None where that is not known."""
        return _language_of(self.transcript, tuple(languages))

    def info(self, languages: Sequence[str]) -> VoiceInfo:
        """`languages`: those of its model."""
        return VoiceInfo(self.name, self.description, self.language(languages), self._digest(), str(self.trimmed))

    def _digest(self) -> str:
        """Equal of what is made of equal recordings and texts, and of what a file gives back, tuned or not."""
        content = hashlib.sha256(self.prompt_text.encode())
        for tensor in (self.speech_tokens, self.mel, self.embedding):
            content.update(tensor.contiguous().numpy().tobytes())
        return content.hexdigest()

    def tokens_per_letter(self) -> float:
        """Speech tokens that a letter (text.spoken_length) takes, as it was found, else as the prompt has it, or as is
        ordinary."""
        if self.pace is not None:
            return self.pace.tokens_per_letter
        letters = _letters_of(self.transcript)
        return self.num_tokens / letters if letters else _DEFAULT_MS_PER_LETTER / units.MS_PER_TOKEN


@lru_cache(maxsize=256)  # asked for with every utterance
def _language_of(transcript: str, languages: tuple[str, ...]) -> str | None:
    return recorded_language(transcript, languages)


@lru_cache(maxsize=256)  # asked for with every instruction
def _letters_of(transcript: str) -> int:
    return spoken_letters(transcript)


# About 14 letters a second, an ordinary reading pace of English.
_DEFAULT_MS_PER_LETTER = 70.0


def load_voice(path: Path, *, vocab_size: int, speaker_dim: int) -> Voice:
    """Read and check one voice file. Raises VoiceError or WeightsError."""
    tensors = load_state_dict(path)
    texts = load_metadata(path)
    missing = [key for key in _TENSORS if key not in tensors] + [key for key in _TEXTS if key not in texts]
    if missing:
        raise VoiceError(f"{path}: not a voice file, it lacks {', '.join(missing)}")
    tokens = tensors["speech_tokens"].to(torch.int64)
    mel = tensors["mel"].to(torch.float32)
    embedding = tensors["embedding"].to(torch.float32)
    _check_shapes(path, tokens, mel, embedding, speaker_dim=speaker_dim)
    if len(tokens) and not (int(tokens.min()) >= 0 and int(tokens.max()) < vocab_size):
        raise VoiceError(f"{path}: speech tokens must lie in 0..{vocab_size - 1}")
    if not (mel.isfinite().all() and embedding.isfinite().all()):
        raise VoiceError(f"{path}: mel or embedding has values that are not finite")
    try:
        pace = pace_in(texts)
    except ValueError as error:
        raise VoiceError(f"{path}: {error}; tune the voice again") from error
    return Voice(
        name=path.stem,
        description=texts["description"],
        prompt_text=texts["prompt_text"],
        transcript=texts["transcript"],
        speech_tokens=tokens,
        mel=mel,
        embedding=embedding,
        pace=pace,
    )


def save_voice(voice: Voice, path: Path, *, made_from: str | None = None) -> None:
    """Write it whole or not at all: a reader sees the old file or the new one. Raises OSError."""
    texts = {"prompt_text": voice.prompt_text, "transcript": voice.transcript, "description": voice.description}
    if made_from is not None:
        texts["made_from"] = made_from
    if voice.pace is not None:
        texts |= voice.pace.texts()
    tensors = {"speech_tokens": voice.speech_tokens.to(torch.int32), "mel": voice.mel, "embedding": voice.embedding}
    write_whole(path, save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata=texts))


def save_pace(path: Path, pace: VoicePace) -> None:
    """Into a voice's file, which is the same otherwise. Raises WeightsError and OSError."""
    tensors, texts = load_state_dict(path), load_metadata(path)
    write_whole(path, save(tensors, metadata=texts | pace.texts()))


def _check_shapes(
    path: Path, tokens: torch.Tensor, mel: torch.Tensor, embedding: torch.Tensor, *, speaker_dim: int
) -> None:
    if tokens.dim() != 1:
        raise VoiceError(f"{path}: speech_tokens has shape {tuple(tokens.shape)}, not [P]")
    wanted = (len(tokens) * units.FRAMES_PER_TOKEN, units.NUM_MELS)
    if tuple(mel.shape) != wanted:
        raise VoiceError(f"{path}: mel has shape {tuple(mel.shape)}, not {wanted}")
    if tuple(embedding.shape) != (speaker_dim,):
        raise VoiceError(f"{path}: embedding has shape {tuple(embedding.shape)}, not ({speaker_dim},)")
