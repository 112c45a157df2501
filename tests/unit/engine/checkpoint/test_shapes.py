"""The tensors that a checkpoint must have: ours are the released model's, and every fault is listed."""

import json
from collections.abc import Mapping

import pytest
import torch

from tests.support.golden import COSYVOICE3_DIR
from tests.support.upstream_source import SMALL
from voicegate.bench.full_size.source import Sizes, model_config
from voicegate.engine.checkpoint.conversion import UnfitTensors
from voicegate.engine.checkpoint.shapes import check_tensors, expected_shapes, optional_shapes, released_shapes
from voicegate.engine.load.family import PARTS

State = dict[str, torch.Tensor]


def tensors(shapes: Mapping[str, tuple[int, ...]]) -> State:
    return {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}


@pytest.mark.parametrize(("part", "file_name"), [("llm", "llm.pt"), ("flow", "flow.pt"), ("vocoder", "hift.pt")])
def test_full_size_shapes_are_the_released_models(part: str, file_name: str) -> None:
    model = model_config(Sizes())
    computed = expected_shapes(part, model) | optional_shapes(part, model)
    manifest = json.loads((COSYVOICE3_DIR / "manifest_full.json").read_text())[file_name]
    assert computed == {name: tuple(shape) for name, shape in manifest.items()}
    assert computed == released_shapes(part)
    check_tensors(file_name, part, model, tensors(computed))


def test_full_size_has_as_many_parameters_as_released() -> None:
    model = model_config(Sizes())
    counts = [sum(torch.Size(shape).numel() for shape in expected_shapes(part, model).values()) for part in PARTS]
    assert counts == [506_148_480, 332_257_088, 20_779_887]


def test_what_upstream_holds_besides_may_be_missing() -> None:
    model = model_config(SMALL)
    for part in PARTS:
        check_tensors("file", part, model, tensors(expected_shapes(part, model)))


def test_every_fault_is_listed() -> None:
    model = model_config(SMALL)
    found: dict[str, object] = dict(tensors(expected_shapes("flow", model)))
    del found["input_embedding.weight"]
    found |= {"extra": torch.empty(2, 3), "epoch": 7, "decoder.estimator.proj_out.bias": torch.empty(81)}
    found["decoder.estimator.rotary_embed.inv_freq"] = torch.empty(5)
    with pytest.raises(UnfitTensors, match=r"flow\.pt does not fit .*: 1 missing, 2 unknown, 2 misshaped") as caught:
        check_tensors("flow.pt", "flow", model, found)
    assert sorted(caught.value.faults) == [
        "flow.pt: misshaped: decoder.estimator.proj_out.bias is [81], not [80]",
        "flow.pt: misshaped: decoder.estimator.rotary_embed.inv_freq is [5], not [16]",
        "flow.pt: missing: input_embedding.weight [6561, 80]",
        "flow.pt: unknown: epoch, a int",
        "flow.pt: unknown: extra [2, 3]",
    ]
    assert "released" not in str(caught.value)


@pytest.mark.parametrize("part", PARTS)
def test_released_weights_beside_another_models_configuration(part: str) -> None:
    with pytest.raises(UnfitTensors, match="it is the released CosyVoice3's, so the configuration is of another one"):
        check_tensors("file", part, model_config(SMALL), tensors(released_shapes(part)))
