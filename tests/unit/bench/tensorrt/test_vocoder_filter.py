"""The vocoder's filter as ONNX equals the engine's own, call after call, on a CPU."""

import onnx
import pytest
import torch

from tests.support.vocoder import golden_model
from tests.unit.bench.tensorrt.support import runner_of, types_of
from voicegate.bench.tensorrt.graph import OPSET
from voicegate.bench.tensorrt.vocoder_filter import VocoderShape, empty_inputs, state_shapes, vocoder_filter_model
from voicegate.engine.token2wav.vocoder.model import VocoderModel
from voicegate.engine.token2wav.vocoder.network import VocoderNetwork
from voicegate.engine.token2wav.vocoder.state import BatchRows, StateTable

pytestmark = pytest.mark.unit

CPU = torch.device("cpu")
SHAPE = VocoderShape(num_rows=2, num_frames=4)
# RMS, relative to the output's own: 9.8e-6 and 5.6e-3 were seen.
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
    def filter(self, mel: torch.Tensor, spectra: torch.Tensor, *, is_first: bool) -> torch.Tensor:
        flags = torch.full((SHAPE.num_rows,), is_first)
        frames = torch.full((SHAPE.num_rows,), SHAPE.num_frames)
        rows = BatchRows(frames, flags, torch.zeros_like(flags), uniform_frames=SHAPE.num_frames)
        tails = self._table.tails(self._table.rows)
        return self._network._filter(mel, spectra, tails, rows)


def test_its_state_is_the_networks(model: VocoderModel) -> None:
    layout = VocoderNetwork(model.config, model.weights, dtype=torch.float32, device=CPU).layout
    found = state_shapes(model.config, model.weights, SHAPE)
    others = {"source", "frames"}  # of the source and of the synthesis
    names = {name for name, size in layout.items() if name not in others and size[0]}
    assert {name.removesuffix("_before") for name in found} == names
    for name, (rows, channels, columns) in found.items():
        assert (rows, columns, channels) == (SHAPE.num_rows, *layout[name.removesuffix("_before")])


@pytest.mark.parametrize("low", TOLERANCES)
def test_three_calls(model: VocoderModel, low: str) -> None:
    reference = Reference(model)
    run = runner_of(vocoder_filter_model(model.config, model.weights, SHAPE, low=low), low=low)
    generator = torch.Generator().manual_seed(1)
    fed = empty_inputs(model.config, model.weights, SHAPE)
    for call in range(3):
        mel, spectra = (
            torch.randn(fed[name].shape, generator=generator).transpose(1, 2) for name in ("mel", "spectra")
        )
        fed |= {"mel": mel.mT.numpy(), "spectra": spectra.mT.numpy()}
        fed["is_first"][:] = call == 0
        made = run(fed)
        expected = reference.filter(mel, spectra, is_first=call == 0)
        found = torch.from_numpy(made["filtered"]).mT
        error = (found - expected).square().mean().sqrt() / expected.square().mean().sqrt()
        assert error < TOLERANCES[low]
        fed |= {name.removeprefix("new."): value for name, value in made.items() if name.startswith("new.")}


@pytest.mark.parametrize("low", ["float16", "bfloat16"])
def test_convolutions_are_low_and_what_adds_up_is_float32(model: VocoderModel, low: str) -> None:
    made = vocoder_filter_model(model.config, model.weights, SHAPE, low=low)
    assert [(opset.domain, opset.version) for opset in made.opset_import] == [("", OPSET)]
    types = types_of(made)
    wanted = onnx.TensorProto.FLOAT16 if low == "float16" else onnx.TensorProto.BFLOAT16
    for node in made.graph.node:
        if node.op_type == "Conv":
            assert {types[name] for name in node.input} == {wanted}, node.name
        if node.op_type in ("Sin", "LeakyRelu", "Add"):
            assert {types[name] for name in node.input} == {onnx.TensorProto.FLOAT}, node.name
