"""Engines that run one after the other have their tensors in the same place, each as its own shapes lay them out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from voicegate.engine.backends.tensorrt.library import ALIGNMENT_BYTES, TensorrtError, TensorSpec
from voicegate.engine.backends.tensorrt.shared_tensors import SharedTensors

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Engine:
    """As far as it matters here."""

    tensors: Mapping[str, TensorSpec]
    scratch_bytes: int = 0


def engine(context: tuple[int, ...], *, num_layers: int = 12, x: torch.dtype = torch.float32, scratch: int = 0) -> Any:
    layers = {f"context.{layer}": TensorSpec(torch.bfloat16, context, True) for layer in reversed(range(num_layers))}
    return Engine({"x": TensorSpec(x, (len(context), 3), True), **layers}, scratch)


def test_a_group_lies_in_the_order_of_its_numbers_and_every_address_is_aligned() -> None:
    small, large = engine((2, 5), scratch=100), engine((3, 5, 70), scratch=7)
    shared = SharedTensors([small, large], ["x", "context"], CPU)
    assert shared.scratch.nbytes == 100
    context = shared.of(small, "context")
    assert (context.shape, context.dtype) == ((12, 2, 5), torch.bfloat16)
    bound = shared.bindings(small)
    assert set(bound) == set(small.tensors)
    for name, tensor in bound.items():
        assert (tensor.shape, tensor.is_contiguous()) == (small.tensors[name].shape, True)
        assert not tensor.any()
    first = bound["context.0"].data_ptr()
    for layer in range(12):
        bound[f"context.{layer}"].fill_(layer)
        assert (bound[f"context.{layer}"].data_ptr() - first) % ALIGNMENT_BYTES == 0
    assert context[:, 0, 0].tolist() == list(range(12))
    assert shared.of(large, "context").data_ptr() == first
    assert shared.of(large, "x").shape == (1, 3, 3), "a tensor of its own name"


def test_engines_that_are_not_of_one_kind() -> None:
    with pytest.raises(TensorrtError, match="x is of 2 types"):
        SharedTensors([engine((2,)), engine((2,), x=torch.float16)], ["x"], CPU)
    with pytest.raises(TensorrtError, match="the engine has no tails"):
        SharedTensors([engine((2,))], ["x", "tails"], CPU)
