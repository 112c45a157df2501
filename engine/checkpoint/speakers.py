"""Upstream's spk2info.pt -> voices, where an entry holds a whole zero-shot prompt (`add_zero_shot_spk` saves those)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from tokenizers import Tokenizer

from voicegate.engine.checkpoint.storage import Entry
from voicegate.engine.checkpoint.tokenizer import END_OF_PROMPT
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.units import FRAMES_PER_TOKEN, NUM_MELS

_NAME: Final = re.compile(r"[\w-][\w.-]*")


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
    for name, info in loaded.items():
        try:
            yield _voice(str(name), info, tokenizer, model)
        except _Unfit as error:
            yield f"spk2info.pt: no voice from {name!r}: {error}"


def _voice(name: str, info: Any, tokenizer: Tokenizer, model: ModelConfig) -> SpeakerVoice:
    if not _NAME.fullmatch(name):
        raise _Unfit("a voice's name is made of letters, digits, _ . and -")
    if not isinstance(info, dict):
        raise _Unfit(f"it is a {type(info).__name__}, not a mapping")
    tokens = _tensor(info, "flow_prompt_speech_token", "llm_prompt_speech_token").flatten().to(torch.int64)
    mel = _tensor(info, "prompt_speech_feat").to(torch.float32).reshape(-1, NUM_MELS)
    embedding = _tensor(info, "flow_embedding", "llm_embedding", "embedding").to(torch.float32).flatten()
    text_ids = _tensor(info, "prompt_text").flatten().tolist()
    # Whichever ends first ends the prompt, as upstream trims it.
    length = min(len(tokens), len(mel) // FRAMES_PER_TOKEN)
    if length == 0:
        raise _Unfit("its prompt is empty")
    tokens, mel = tokens[:length], mel[: length * FRAMES_PER_TOKEN]
    if int(tokens.min()) < 0 or int(tokens.max()) >= model.flow.vocab_size:
        raise _Unfit(f"its speech tokens are not all in 0..{model.flow.vocab_size - 1}")
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


def _tensor(info: Mapping[Any, Any], *keys: str) -> torch.Tensor:
    for key in keys:
        if isinstance(info.get(key), torch.Tensor):
            found: torch.Tensor = info[key]
            return found
    raise _Unfit(f"it has no {keys[0]}, so it is not a zero-shot prompt")


def _entry(name: str, tensor: torch.Tensor) -> Entry:
    return Entry(name, tuple(tensor.shape), tensor.dtype, lambda: tensor)
