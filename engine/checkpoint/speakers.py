"""Upstream's spk2info.pt -> voices, where an entry holds a whole zero-shot prompt (`add_zero_shot_spk` saves those)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from tokenizers import Tokenizer

from voicegate.engine.checkpoint.storage import Entry
from voicegate.engine.checkpoint.tokenizer import END_OF_PROMPT
from voicegate.engine.checks import check_voice_name
from voicegate.engine.interface import VoiceRefused
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.units import FRAMES_PER_TOKEN, NUM_MELS

_INTEGERS: Final = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class _Unfit(ValueError):
    """An entry does not hold a voice; says what it lacks."""


@dataclass(frozen=True, slots=True)
class SpeakerVoice:
    """The content of one voice file; see engine.voices.voice."""

    name: str
    entries: tuple[Entry, ...]
    texts: Mapping[str, str]


def speaker_voices(loaded: Any, tokenizer: Tokenizer, model: ModelConfig) -> Iterator[SpeakerVoice | str]:
    """A voice for each entry that makes one, a line that says why not for each other."""
    if not isinstance(loaded, dict):
        yield f"spk2info.pt holds a {type(loaded).__name__}, not speakers by name: no voices from it"
        return
    names: set[str] = set()
    for name, info in loaded.items():
        try:
            if str(name) in names:
                raise _Unfit("another entry has that name")
            yield _voice(str(name), info, tokenizer, model)
            names.add(str(name))
        except (_Unfit, VoiceRefused) as error:
            yield f"spk2info.pt: no voice from {name!r}: {error}"


def _voice(name: str, info: Any, tokenizer: Tokenizer, model: ModelConfig) -> SpeakerVoice:
    """Arguments of `load_voice`. Raises _Unfit and VoiceRefused."""
    check_voice_name(name)
    if not isinstance(info, dict):
        raise _Unfit(f"it is a {type(info).__name__}, not a mapping")
    num_text_ids = tokenizer.get_vocab_size()
    tokens = _ids(info, "flow_prompt_speech_token", "llm_prompt_speech_token", limit=model.flow.vocab_size)
    mel = _mel(info)
    embedding = _numbers(info, "flow_embedding", "llm_embedding", "embedding").flatten()
    text_ids = _ids(info, "prompt_text", limit=num_text_ids).tolist()
    # Whichever ends first ends the prompt, as upstream trims it.
    length = min(len(tokens), len(mel) // FRAMES_PER_TOKEN)
    if length == 0:
        raise _Unfit("its prompt is empty")
    tokens, mel = tokens[:length], mel[: length * FRAMES_PER_TOKEN]
    if len(embedding) != model.flow.speaker_dim:
        raise _Unfit(f"its embedding has {len(embedding)} numbers, not {model.flow.speaker_dim}")
    prompt_text = tokenizer.decode(text_ids, skip_special_tokens=False)
    if END_OF_PROMPT not in prompt_text:
        prompt_text = model.instruct_prefix + prompt_text
    tensors = {"speech_tokens": tokens, "mel": mel, "embedding": embedding}
    return SpeakerVoice(
        name,
        tuple(_entry(key, tensor) for key, tensor in tensors.items()),
        {
            "prompt_text": prompt_text,
            "transcript": prompt_text.partition(END_OF_PROMPT)[2],
            "description": "from spk2info.pt",
        },
    )


def _ids(info: Mapping[Any, Any], *keys: str, limit: int) -> torch.Tensor:
    """[n] int64"""
    key, found = _tensor(info, *keys)
    if found.dtype not in _INTEGERS:
        raise _Unfit(f"its {key} is {found.dtype}, not of whole numbers")
    ids = _row(key, found).to(torch.int64)
    if len(ids) and not (int(ids.min()) >= 0 and int(ids.max()) < limit):
        raise _Unfit(f"its {key} is not all in 0..{limit - 1}")
    return ids


def _mel(info: Mapping[Any, Any]) -> torch.Tensor:
    """[frames, 80] float32"""
    found = _numbers(info, "prompt_speech_feat")
    *batch, _, num_bins = (1, 1, *found.shape)
    if found.dim() < 2 or num_bins != NUM_MELS or any(size != 1 for size in batch):
        raise _Unfit(f"its prompt_speech_feat has shape {list(found.shape)}, not [1, frames, {NUM_MELS}]")
    return found.reshape(-1, NUM_MELS)


def _numbers(info: Mapping[Any, Any], *keys: str) -> torch.Tensor:
    key, found = _tensor(info, *keys)
    if not found.is_floating_point():
        raise _Unfit(f"its {key} is {found.dtype}, not of floating point")
    numbers = found.to(torch.float32)
    if not numbers.isfinite().all():
        raise _Unfit(f"its {key} has values that are not finite")
    return numbers


def _row(key: str, tensor: torch.Tensor) -> torch.Tensor:
    """Without the batch of one that upstream's have in front."""
    if tensor.numel() and tensor.numel() != tensor.shape[-1:].numel():
        raise _Unfit(f"its {key} has shape {list(tensor.shape)}, which is not one row")
    return tensor.flatten()


def _tensor(info: Mapping[Any, Any], *keys: str) -> tuple[str, torch.Tensor]:
    """The first that is there, and its name."""
    for key in keys:
        found = info.get(key)
        if isinstance(found, torch.Tensor) and found.layout is torch.strided:
            return key, found
    raise _Unfit(f"it has no {keys[0]}, so it is not a zero-shot prompt")


def _entry(name: str, tensor: torch.Tensor) -> Entry:
    return Entry(name, tuple(tensor.shape), tensor.dtype, lambda: tensor)
