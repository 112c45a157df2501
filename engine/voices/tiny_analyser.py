"""The encoder of the tiny demonstration model: `speech_tokenizer.safetensors`, a small convolutional net over the mel.

It quantises to some thousand codes (finite scalar quantisation, arXiv:2309.15505). A token is a code and the token's
place modulo the phases that `model.json` names (models/tiny/RECIPE.md says why). There is no speaker encoder: the model
was trained on two speakers with one fixed embedding each. A recording gets that of the shipped voice whose average
spectrum is nearest.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import torch
from torch.nn import functional

from voicegate.engine import units
from voicegate.engine.interface import EngineError, Unsupported
from voicegate.engine.model.weights import load_state_dict
from voicegate.engine.voices.features import PromptAudio
from voicegate.engine.voices.voice import Voice

TOKENIZER_FILE: Final = "speech_tokenizer.safetensors"
# Scale of the mel before the first layer, as the net was trained.
_MEL_SHIFT, _MEL_SCALE = 6.0, 4.0
# Where tanh saturates, a shade beyond the outermost level: as the net was trained.
_FSQ_MARGIN = 1e-3
# Frames this far below the loudest count for the speaker's average spectrum; pauses do not.
_SPEECH_RANGE = 5.0


@dataclass(frozen=True, slots=True)
class _Codes:
    """`speech_tokenizer` of model.json."""

    levels: tuple[int, ...]
    phases: int


class TinyAnalyser:
    def __init__(self, model_dir: Path, known_voices: Iterable[Voice]) -> None:
        """`known_voices` lend their embeddings. Raises EngineError for unfit files, Unsupported without voices."""
        path = model_dir / TOKENIZER_FILE
        self._path = path
        self._weights = {name: tensor.float() for name, tensor in load_state_dict(path).items() if name != "perm"}
        self._token_of_code = load_state_dict(path)["perm"].long()
        self._codes = _read_codes(model_dir)
        self._known = list(known_voices)
        if not self._known:
            raise Unsupported(f"{model_dir}: a model of this kind makes voices from those it has, and it has none")
        self.identity = f"tiny {path.stat().st_size}"

    def speech_tokens(self, audio: PromptAudio) -> torch.Tensor:
        """A token hears two frames and the silence rule: both quiet, then it is the code of silence."""
        num_tokens = len(audio.mel) // units.FRAMES_PER_TOKEN
        mel = audio.mel[: num_tokens * units.FRAMES_PER_TOKEN]
        codes = self._codes_of(mel)
        loudest = mel.mean(1).reshape(num_tokens, units.FRAMES_PER_TOKEN).amax(1)
        codes = torch.where(loudest < self._weights["sil_thr"], self._weights["sil_code"].long(), codes)
        return self._token_of_code[codes * self._codes.phases + torch.arange(num_tokens) % self._codes.phases]

    def embedding(self, audio: PromptAudio) -> torch.Tensor:
        average = _average_spectrum(audio.mel)
        nearest = min(self._known, key=lambda voice: float((_average_spectrum(voice.mel) - average).norm()))
        return nearest.embedding

    def _codes_of(self, mel: torch.Tensor) -> torch.Tensor:
        """[2n, 80] -> [n] int64."""
        hidden = functional.gelu(self._conv("inp", ((mel + _MEL_SHIFT) / _MEL_SCALE).T[None]))
        for block in range(2):
            hidden = self._residual(f"r1.{block}", hidden)
        hidden = functional.gelu(self._conv("down", hidden, stride=units.FRAMES_PER_TOKEN))
        for block in range(3):
            hidden = self._residual(f"r2.{block}", hidden)
        return quantise(self._conv("proj", hidden)[0], self._codes.levels)

    def _residual(self, name: str, hidden: torch.Tensor) -> torch.Tensor:
        weight, bias = self._weights[f"{name}.n.n.weight"], self._weights[f"{name}.n.n.bias"]
        normed = functional.layer_norm(hidden.transpose(1, 2), weight.shape, weight, bias).transpose(1, 2)
        return hidden + self._conv(f"{name}.c2", functional.gelu(self._conv(f"{name}.c1", normed)))

    def _conv(self, name: str, hidden: torch.Tensor, *, stride: int = 1) -> torch.Tensor:
        weight = self._weights[f"{name}.weight"]
        padding = (weight.shape[2] - 1) // 2
        return functional.conv1d(hidden, weight, self._weights[f"{name}.bias"], stride, padding)


def quantise(values: torch.Tensor, levels: tuple[int, ...]) -> torch.Tensor:
    """[len(levels), n] -> [n] int64: each value on its own number of levels, the first the lowest digit."""
    codes = torch.zeros(values.shape[1], dtype=torch.int64)
    place = 1
    for value, num_levels in zip(values, levels, strict=True):
        reach = (num_levels - 1) * (1 + _FSQ_MARGIN) / 2
        offset = 0.5 if num_levels % 2 == 0 else 0.0  # an even number of levels has none in the middle
        level = (torch.tanh(value + math.atanh(offset / reach)) * reach - offset).round() + num_levels // 2
        codes += level.long() * place
        place *= num_levels
    return codes


def _average_spectrum(mel: torch.Tensor) -> torch.Tensor:
    """[80]: of the frames that hold speech, without its loudness."""
    loudness = mel.mean(1)
    average = mel[loudness > loudness.max() - _SPEECH_RANGE].mean(0)
    return average - average.mean()


def _read_codes(model_dir: Path) -> _Codes:
    path = model_dir / "model.json"
    try:
        raw: Mapping[str, Any] = msgspec.json.decode(path.read_bytes())["speech_tokenizer"]
        return _Codes(tuple(raw["levels"]), raw["phases"])
    except (OSError, msgspec.DecodeError, KeyError, TypeError) as error:
        raise EngineError(f"{path} does not describe {TOKENIZER_FILE} (speech_tokenizer: levels, phases)") from error
