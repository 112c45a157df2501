"""How far TensorRT's filter is off our own float32 layers, in two calls of which the second looks back."""

from collections.abc import Mapping

import torch

from voicegate.engine import units
from voicegate.engine.backends.tensorrt.library import LoadedEngine
from voicegate.engine.backends.tensorrt.single_engine import SingleEngine
from voicegate.engine.backends.tensorrt.vocoder.shape import FilterShape
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.vocoder.torch.network import VocoderNetwork
from voicegate.engine.vocoder.torch.state import BatchRows, StateTable

_CPU = torch.device("cpu")
_NUM_CALLS = 2


class FilterCheck:
    def __init__(self, config: VocoderConfig, weights: Mapping[str, torch.Tensor]) -> None:
        """`weights`: on the CPU."""
        self._config = config
        self._network = VocoderNetwork(config, weights, dtype=torch.float32, device=_CPU)
        self._expected: dict[int, list[tuple[dict[str, torch.Tensor], torch.Tensor]]] = {}  # by frames

    @torch.inference_mode()
    def error(self, engine: LoadedEngine, shape: FilterShape) -> float:
        """The largest of any row's and call's: RMS, relative. NaN where the engine has one. Raises TensorrtError."""
        single = SingleEngine(engine)
        tensors = single.tensors
        errors = []
        for call, (inputs, expected) in enumerate(self._calls(shape.num_frames)):
            tensors["frames"].fill_(shape.num_frames)
            tensors["is_first"].fill_(int(call == 0))
            for name, columns in inputs.items():
                tensors[name][..., : columns.shape[2]] = columns.to(engine.device)  # the same for every row
            single.run()
            for name in ("state", "edge"):
                tensors[name].copy_(tensors[f"new_{name}"])
            difference = tensors["filtered"].cpu() - expected
            errors.append(difference.flatten(1).norm(dim=1) / expected.norm())
        return float(torch.cat(errors).max())

    def _calls(self, num_frames: int) -> list[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        """Calls of one stream: inputs, and expected outputs."""
        if num_frames not in self._expected:
            self._expected[num_frames] = self._reference(num_frames)
        return self._expected[num_frames]

    def _reference(self, num_frames: int) -> list[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        generator = torch.Generator().manual_seed(num_frames)
        num_spectra = units.SAMPLES_PER_FRAME // self._config.stft_hop * num_frames + 1
        table = StateTable(self._network.layout, 1, dtype=torch.float32, device=_CPU)
        tails = table.tails(table.rows)
        calls = []
        for call in range(_NUM_CALLS):
            mel = torch.randn(1, num_frames + self._config.look_right_frames, units.NUM_MELS, generator=generator)
            spectra = torch.randn(1, num_spectra, self._config.stft_size + 2, generator=generator)
            known = torch.cat((tails["spectra"], spectra), dim=1)
            rows = BatchRows(
                frames=torch.tensor([num_frames]),
                is_first=torch.tensor([call == 0]),
                is_final=torch.tensor([False]),
                uniform_frames=num_frames,
            )
            expected = self._network.filter(mel.clone(), spectra, tails, rows)
            calls.append(({"mel": mel, "spectra": known}, expected))
        return calls
