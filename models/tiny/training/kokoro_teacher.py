"""Kokoro-82M: the other voices, from the phonemes that hibari found."""

import importlib
import importlib.util
import itertools
import json
import math
import sys
import tempfile
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.utils.parametrize

from .kokoro_weights import torch_state
from .question_pitch import Floats
from .teachers import PITCH_HOP, Spoken, known_symbols, labelled, symbol_ends, with_raised_questions

# "Take two more of them." Kokoro-82M adds a sound to what it says last ("come in, sir"). So this is said after each
# utterance and cut off. It begins with a stop: its closure is silent.
_AFTER: Final = " tˈAk tˈu mˈɔɹ ʌv ðˌɛm."
_DB_OF_LOUDNESS: Final = 10 / math.log(10)  # about: seen beside the samples' level
_CUT_STEP: Final = 120  # samples: the quietest four of these are where it is cut off

_STYLE_OF_SOUND: Final = 128  # of a style's 256 numbers: these for the decoder, the rest for melody and duration
_FRAME_STEP: Final = 8  # of 25 ms: durations are multiples of it, so that many are equal
_MAX_SYMBOLS, _MAX_FRAMES = 6_000, 6_400  # of one batch

# Kokoro-82M's configuration, as its authors publish it.
_KOKORO: Final[dict[str, Any]] = {
    "vocab": {},
    "n_token": 178,
    "hidden_dim": 512,
    "style_dim": 128,
    "n_layer": 3,
    "max_dur": 50,
    "dropout": 0.2,
    "text_encoder_kernel_size": 5,
    "n_mels": 80,
    "plbert": {
        "hidden_size": 768,
        "num_attention_heads": 12,
        "intermediate_size": 2048,
        "max_position_embeddings": 512,
        "num_hidden_layers": 12,
        "dropout": 0.1,
    },
    "istftnet": {
        "upsample_kernel_sizes": [20, 12],
        "upsample_rates": [10, 6],
        "gen_istft_hop_size": 5,
        "gen_istft_n_fft": 20,
        "resblock_dilation_sizes": [[1, 3, 5]] * 3,
        "resblock_kernel_sizes": [3, 7, 11],
        "upsample_initial_channel": 512,
    },
}


class Kokoro:
    """`model` is the int8 export, run in float32 by the package `kokoro`; `style` one of the model's voices.

    onnxruntime ran the export at a third of real time a core on one machine, so it is not used. Utterances share a
    batch where their lengths are equal, so none is padded: the decoder normalises over an utterance's whole time.
    """

    def __init__(self, model: Path, vocabulary: Path, style: Path, device: torch.device) -> None:
        self._vocabulary: dict[str, int] = json.loads(vocabulary.read_text())["vocab"]
        self._style = torch.from_numpy(np.fromfile(style, np.float32).reshape(-1, 256)).to(device)
        self._device = device
        self._model = _kokoro_model(model).to(device).eval()

    def speak(self, phonemes: str) -> Spoken:
        ((_, spoken),) = self.speak_all([phonemes])
        return spoken

    @torch.no_grad()
    def speak_all(self, phonemes: Sequence[str]) -> Iterator[tuple[int, Spoken]]:
        """The last pause is drawn out to a length that others have; then it is cut off, with what is said after."""
        ids = [
            [self._vocabulary[symbol] for symbol in known_symbols(each + _AFTER, self._vocabulary)] for each in phonemes
        ]
        read: list[tuple[int, int, _Read]] = []
        for indices in _batches([(len(each), index) for index, each in enumerate(ids)], _MAX_SYMBOLS):
            for index, each in zip(indices, self._read([ids[index] for index in indices]), strict=True):
                read.append((int(each.durations.sum()), index, each))
        by_index = {index: each for _, index, each in read}
        for indices in _batches([(frames, index) for frames, index, _ in read], _MAX_FRAMES):
            said = [phonemes[index] + _AFTER for index in indices]
            samples, pitch = self._say([by_index[index] for index in indices], said)
            for row, index in enumerate(indices):
                durations = by_index[index].durations.cpu().numpy()
                known = known_symbols(phonemes[index], self._vocabulary)
                ends = symbol_ends(durations, len(samples[row]) // PITCH_HOP)[1:-1]
                whole = labelled(samples[row], pitch[row], said[row], self._vocabulary, durations)
                yield index, _cut(whole, *_last_pause(known, ends))

    def _read(self, ids: list[list[int]]) -> list["_Read"]:
        """Texts of one length: what is said for each symbol, how long, and the style for that."""
        model = self._model
        tokens = torch.tensor([[0, *each, 0] for each in ids], device=self._device)
        rows, length = tokens.shape
        style = self._style[min(length - 3, len(self._style) - 1)].expand(rows, -1)
        lengths = torch.full((rows,), length)
        no_mask = torch.zeros(rows, length, dtype=torch.bool, device=self._device)
        known = model.bert_encoder(model.bert(tokens, attention_mask=(~no_mask).int())).transpose(1, 2)
        melody = model.predictor.text_encoder(known, style[:, _STYLE_OF_SOUND:], lengths, no_mask)
        hidden, _ = model.predictor.lstm(melody)
        durations = torch.sigmoid(model.predictor.duration_proj(hidden)).sum(2).round().clamp(min=1).long()
        durations[:, -1] += -durations.sum(1) % _FRAME_STEP
        sound = model.text_encoder(tokens, lengths, no_mask).transpose(1, 2)
        return [_Read(*each) for each in zip(durations, melody, sound, style, strict=True)]

    def _say(self, read: list["_Read"], phonemes: list[str]) -> tuple[Floats, Floats]:
        """Utterances of one duration: samples and pitch, a row each."""
        melody = torch.stack([each.melody.repeat_interleave(each.durations, 0) for each in read])
        sound = torch.stack([each.sound.repeat_interleave(each.durations, 0) for each in read])
        style = torch.stack([each.style for each in read])
        predicted, loudness = self._model.predictor.F0Ntrain(melody.transpose(1, 2), style[:, _STYLE_OF_SOUND:])
        level_db = _DB_OF_LOUDNESS * loudness.float().cpu().numpy()
        pitch = np.stack(
            [
                with_raised_questions(hertz, level, text, self._vocabulary, each.durations.cpu().numpy())
                for hertz, level, text, each in zip(
                    predicted.float().cpu().numpy(), level_db, phonemes, read, strict=True
                )
            ]
        )
        heard = torch.from_numpy(pitch).to(predicted)
        samples = self._model.decoder(sound.transpose(1, 2), heard, loudness, style[:, :_STYLE_OF_SOUND])
        return samples.flatten(1).float().cpu().numpy(), pitch


@dataclass(frozen=True, slots=True)
class _Read:
    durations: torch.Tensor  # [symbols], frames of 25 ms
    melody: torch.Tensor  # [symbols, 640]
    sound: torch.Tensor  # [symbols, 512]
    style: torch.Tensor  # [256]


def _batches(sized: list[tuple[int, int]], most: int) -> Iterator[list[int]]:
    """Indices of one size together, at most `most` in sum. The longest come first: they show whether memory will do."""
    sized = sorted(sized, reverse=True)
    for size, group in itertools.groupby(sized, lambda each: each[0]):
        indices = [index for _, index in group]
        rows = max(most // max(size, 1), 1)
        for first in range(0, len(indices), rows):
            yield indices[first : first + rows]


def kokoro(folder: Path, style: str, device: torch.device) -> Kokoro:
    """From a folder that holds the export, its vocabulary and the styles."""
    return Kokoro(folder / "kokoro.onnx", folder / "vocab.json", folder / style, device)


def _kokoro_model(path: Path) -> Any:
    """The package's own modules, without its front end: importing that would want a phonemiser."""
    import onnx  # noqa: PLC0415

    spec = importlib.util.find_spec("kokoro")
    if spec is None or spec.submodule_search_locations is None:
        raise SystemExit(
            "Kokoro-82M is run by the package kokoro, which is not installed (pip install --no-deps kokoro)"
        )
    package = types.ModuleType("kokoro")
    package.__path__, package.__spec__ = list(spec.submodule_search_locations), spec
    sys.modules["kokoro"] = package
    with tempfile.NamedTemporaryFile(suffix=".pth") as nothing:
        torch.save({}, nothing.name)
        model = importlib.import_module("kokoro.model").KModel("hexgrad/Kokoro-82M", _KOKORO, nothing.name)
    for module in model.modules():
        if hasattr(module, "weight_g"):
            torch.nn.utils.remove_weight_norm(module)
        elif torch.nn.utils.parametrize.is_parametrized(module):
            torch.nn.utils.parametrize.remove_parametrizations(module, "weight")
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    state = torch_state(onnx.load(path).graph, shapes)
    # Norms without learnt numbers keep those that they begin with; the pooler is never called.
    left = [name for name in shapes if name not in state and ".norm." not in name and "pooler" not in name]
    if left:
        raise SystemExit(f"{path} lacks {', '.join(left)}")
    model.load_state_dict(state, strict=False)
    return model


def _last_pause(symbols: Sequence[str], ends: npt.NDArray[np.int64]) -> tuple[int, int]:
    """The frames of an utterance's last mark, or of the blank behind it where it has none. More symbols follow."""
    last = max((place for place, symbol in enumerate(symbols) if symbol.isalpha()), default=0)
    return int(ends[last]), int(ends[max(len(symbols) - 1, last + 1)])


def _cut(spoken: Spoken, begin: int, end: int) -> Spoken:
    """Up to the quietest place between two frames."""
    blocks = spoken.samples[begin * PITCH_HOP : end * PITCH_HOP]
    blocks = blocks[: len(blocks) // _CUT_STEP * _CUT_STEP].reshape(-1, _CUT_STEP)
    power = np.convolve((blocks**2).mean(1), np.ones(4), mode="same")
    frame = begin + int(np.argmin(power)) * _CUT_STEP // PITCH_HOP
    return Spoken(
        spoken.samples[: frame * PITCH_HOP], spoken.pitch_hz[:frame], spoken.symbols[:frame], spoken.words[:frame]
    )
