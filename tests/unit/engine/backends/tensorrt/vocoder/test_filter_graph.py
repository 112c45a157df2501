"""The vocoder's filter as ONNX equals the engine's own, call after call, on a CPU, however far each row goes on."""

import numpy as np
import onnx
import pytest
import torch

from tests.support.tensorrt.graphs import graph_hash, runner_of, types_of
from tests.support.vocoder import golden_model
from voicegate.engine import units
from voicegate.engine.backends.tensorrt.graph import DTYPES, OPSET, Array
from voicegate.engine.backends.tensorrt.vocoder.filter_graph import filter_model
from voicegate.engine.backends.tensorrt.vocoder.shape import GRAPH_VERSION, FilterShape
from voicegate.engine.vocoder.model import VocoderModel
from voicegate.engine.vocoder.torch.network import VocoderNetwork
from voicegate.engine.vocoder.torch.state import BatchRows, StateTable
from voicegate.engine.vocoder.weights import source_stride

CPU = torch.device("cpu")
SHAPE = FilterShape(num_rows=2, num_frames=4, mel_channels=96, spectrum_channels=32)
PER_FRAME = 120
# RMS, relative to the output's own: 9.8e-6 and 5.5e-3 were seen.
TOLERANCES = {"float32": 5e-5, "float16": 2e-2}


@pytest.fixture(scope="module")
def model() -> VocoderModel:
    return golden_model(48_000)


class Reference:
    """The engine's own network, of which the filter is a part."""

    def __init__(self, model: VocoderModel) -> None:
        self._network = VocoderNetwork(model.config, model.weights, dtype=torch.float32, device=CPU)
        self._table = StateTable(self._network.layout, SHAPE.num_rows, dtype=torch.float32, device=CPU)

    @torch.inference_mode()
    def filter(
        self, mel: torch.Tensor, spectra: torch.Tensor, frames: list[int], *, is_first: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Runs the filter. Returns its output, and the spectra that it had from before."""
        flags = torch.full((SHAPE.num_rows,), is_first)
        rows = BatchRows(torch.tensor(frames), flags, torch.zeros_like(flags), uniform_frames=None)
        tails = self._table.tails(self._table.rows)
        before = tails["spectra"].clone()
        return self._network.filter(mel, spectra, tails, rows), before


def padded(columns: torch.Tensor, channels: int, low: str) -> Array:
    """Pads with channels that no layer reads: they must not matter."""
    rows, count, known = columns.shape
    buffer = np.full((rows, count, channels), np.nan, np.float32)
    buffer[:, :, :known] = columns.numpy()
    return buffer.astype(DTYPES[low][1])


@pytest.mark.parametrize("low", TOLERANCES)
def test_three_calls(model: VocoderModel, low: str) -> None:
    reference = Reference(model)
    made = filter_model(model.config, model.weights, SHAPE, low=low)
    run = runner_of(made, low=low)
    generator = torch.Generator().manual_seed(1)
    shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in made.graph.input}
    assert shapes["spectra"][1] == source_stride(model.config, 0) - 1 + PER_FRAME * SHAPE.num_frames + 1
    kept = {"state": np.zeros(shapes["state"], DTYPES[low][1]), "edge": np.full(shapes["edge"], np.nan, np.float32)}
    for call, frames in enumerate(([4, 4], [3, 4], [4, 1])):
        mel = torch.randn(SHAPE.num_rows, SHAPE.num_frames + 4, units.NUM_MELS, generator=generator)
        spectra = torch.randn(SHAPE.num_rows, PER_FRAME * SHAPE.num_frames + 1, 18, generator=generator)
        expected, before = reference.filter(mel, spectra, frames, is_first=call == 0)
        fed = {
            "mel": padded(mel, SHAPE.mel_channels, low),
            "spectra": padded(torch.cat((before, spectra), dim=1), SHAPE.spectrum_channels, low),
            "frames": np.array(frames, np.int32),
            "is_first": np.full(SHAPE.num_rows, int(call == 0), np.int32),
            **kept,
        }
        found = run(fed)
        for row, count in enumerate(frames):
            wanted = expected[row, : PER_FRAME * count + 1]
            difference = torch.from_numpy(found["filtered"][row, : PER_FRAME * count + 1]) - wanted
            assert difference.square().mean().sqrt() / wanted.square().mean().sqrt() < TOLERANCES[low]
        kept = {"state": found["new_state"], "edge": found["new_edge"]}


@pytest.mark.parametrize("low", ["float16", "bfloat16"])
def test_convolutions_are_low_and_what_adds_up_is_float32(model: VocoderModel, low: str) -> None:
    made = filter_model(model.config, model.weights, SHAPE, low=low)
    assert [(opset.domain, opset.version) for opset in made.opset_import] == [("", OPSET)]
    types = types_of(made)
    wanted = onnx.TensorProto.FLOAT16 if low == "float16" else onnx.TensorProto.BFLOAT16
    indices = {onnx.TensorProto.INT32}
    for node in made.graph.node:
        found = {types[name] for name in node.input}
        if node.op_type == "Conv":
            assert found == {wanted}, node.name
        if node.op_type in ("Sin", "LeakyRelu", "Add"):
            assert found in ({onnx.TensorProto.FLOAT}, indices), node.name


def test_another_graph_has_another_version(model: VocoderModel) -> None:
    """Engines on disk are told by it: whoever changes the graph raises GRAPH_VERSION, and puts the new hash here."""
    made = filter_model(model.config, model.weights, SHAPE, low="float16")
    assert {GRAPH_VERSION: graph_hash(made)} == {"1": "26b926b78ddeb1e1"}
