"""The teachers, offline: a phoneme string in, samples, phoneme times and pitch out. RECIPE.md has their licences.

hibari (one woman's voice, distilled from Kokoro-82M) reads the text; Kokoro-82M speaks the other voices from the
phonemes that hibari found.
"""

import importlib
import importlib.util
import json
import sys
import tempfile
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime
import torch
import torch.nn.utils.parametrize

from .kokoro_weights import torch_state

SAMPLE_RATE_HZ: Final = 24_000
PITCH_HOP: Final = 300  # samples between two values of the teachers' pitch
_STRESS: Final = "ˈˌ"

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Spoken:
    samples: Floats
    pitch_hz: Floats  # [samples / 300]; 0 where unvoiced
    symbols: npt.NDArray[np.uint8]  # a phoneme's id at each value of the pitch; 0 is a pause


class Teacher(Protocol):
    def speak(self, phonemes: str) -> Spoken: ...


class Hibari:
    def __init__(self) -> None:
        import hibari  # noqa: PLC0415 - only where a corpus is made
        import onnx  # noqa: PLC0415

        self._hibari = hibari.Hibari()
        self._dsp = hibari.dsp
        model = onnx.load(self._hibari.model_path)
        self._session = _with_outputs(model.SerializeToString(), ("/Clip_output_0",))
        self._random = np.random.default_rng(0)

    def phonemes(self, text: str) -> str:
        phonemes: list[str] = self._hibari.phonemize(text)
        return " ".join(phonemes)

    def speak(self, phonemes: str) -> Spoken:
        ids = self._hibari.ids(phonemes)
        feeds = {"ids": np.asarray([ids], np.int64), "speed": np.ones(1, np.float32)}
        *spectra, pitch, durations = self._session.run(None, feeds)
        samples = self._dsp.synth(*(part[0] for part in spectra), pitch[0], self._random)
        return _spoken(samples, pitch[0], phonemes, self._hibari.vocab, durations)


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

    onnxruntime ran the export at a third of real time a core on one machine, so it is not used.
    """

    def __init__(self, model: Path, vocabulary: Path, style: Path, device: torch.device) -> None:
        self._vocabulary: dict[str, int] = json.loads(vocabulary.read_text())["vocab"]
        self._style = torch.from_numpy(np.fromfile(style, np.float32).reshape(-1, 1, 256)).to(device)
        self._device = device
        self._model = _kokoro_model(model).to(device).eval()
        self._pitch = torch.zeros(0)
        self._model.predictor.F0_proj.register_forward_hook(self._keep_pitch)

    def _keep_pitch(self, module: torch.nn.Module, inputs: object, output: torch.Tensor) -> None:
        self._pitch = output

    def speak(self, phonemes: str) -> Spoken:
        ids = [self._vocabulary[symbol] for symbol in phonemes if symbol in self._vocabulary]
        tokens = torch.tensor([[0, *ids, 0]], device=self._device)
        samples, durations = self._model.forward_with_tokens(tokens, self._style[min(len(ids), len(self._style)) - 1])
        arrays = (each.detach().float().cpu().numpy().ravel() for each in (samples, self._pitch, durations))
        made, pitch, counts = arrays
        return _spoken(made, pitch, phonemes, self._vocabulary, counts)


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
    package.__path__ = list(spec.submodule_search_locations)
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


def _with_outputs(model: bytes, names: tuple[str, ...]) -> onnxruntime.InferenceSession:
    """Adds inner values of the published model as further outputs; one thread."""
    import onnx  # noqa: PLC0415

    graph = onnx.load_from_string(model)
    graph.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _spoken(
    samples: Floats, pitch: Floats, phonemes: str, vocabulary: dict[str, int], durations: npt.NDArray[np.generic]
) -> Spoken:
    num_values = len(samples) // PITCH_HOP
    known = [symbol for symbol in phonemes if symbol in vocabulary]
    symbols = np.array([0, *(vocabulary[symbol] for symbol in known), 0], np.uint8)
    for index in range(len(known), 0, -1):  # a stress mark sounds like the vowel that it stands before
        symbol = known[index - 1]
        if symbol in _STRESS:
            symbols[index] = symbols[index + 1]
        elif not (symbol.isalpha() or symbol == " "):
            symbols[index] = 0
    for index, symbol in enumerate(known, 1):
        if symbol == " ":
            symbols[index] = symbols[index - 1]
    counts = np.asarray(durations, np.float64).ravel()
    edges = np.round(np.cumsum(counts) * num_values / counts.sum()).astype(int)
    spread = np.repeat(symbols, np.diff(edges, prepend=0))
    voiced = np.where(pitch > 40, pitch, 0)[:num_values].astype(np.float32)
    return Spoken(samples[: num_values * PITCH_HOP], voiced, spread)
